"""Which tensor each slot is said to be, and what of that cannot be, before anything is proven."""

from collections.abc import Iterator, Sequence

from datagen.ingest.facts import Facts, SlotFacts
from schemas.boundary import place_of
from schemas.card import Card
from schemas.problem import Problem
from schemas.target import Target

OPTION = "--labels"
FILES = "the files"
"""Who says labels that stand in the files themselves."""


def labels_of(
    asked: tuple[str, ...] | None, claimed: tuple[str, ...] | None, card: Card | None
) -> tuple[tuple[str, ...] | None, str]:
    """Return the labels and who says them: the caller, the files themselves, or the card of an export."""
    if asked is not None:
        return asked, OPTION
    if claimed is not None:
        return claimed, FILES
    if card is not None and card.wiring.target is not None:
        # EAGLE's draft learns from the very state that it is fed: one slot.
        names = dict.fromkeys((*card.wiring.fc, card.wiring.target.tensor))
        return tuple(names), "the card beside them"
    return None, "nobody"


def as_said(said_by: str) -> str:
    """Return in words who says the labels.

    >>> as_said(OPTION), as_said(FILES)
    ('as --labels says', 'as the files say')
    """
    return f"as {said_by} {'say' if said_by == FILES else 'says'}"


def label_problems(
    labels: Sequence[str], said_by: str, slots: Sequence[SlotFacts], target: Target
) -> list[Problem]:
    """Return names that the target does not have or that come twice, and a count that is not the slots'."""
    places = {name: place_of(name, target.n_layers) for name in labels}
    problems = [
        place.model_copy(update={"where": f"{OPTION}: {name}"})
        for name, place in places.items()
        if isinstance(place, Problem)
    ]
    problems += [
        Problem(
            where=f"{OPTION}: {name}", kind="twice", message=f"expected once, got {labels.count(name)} times"
        )
        for name in places
        if labels.count(name) > 1
    ]
    if len(labels) != len(slots):
        message = f"expected a label for each of {len(slots)} slots, got {len(labels)} {as_said(said_by)}"
        problems.append(Problem(where=OPTION, kind="count", message=message, repair=f"{in_order(slots)}"))
    return problems


def in_order(slots: Sequence[SlotFacts]) -> str:
    """Return the slots in words, in the order that labels are given in."""
    return "the slots in their order: " + ", ".join(slot.name for slot in slots)


def flag_problem(label: str, said_by: str, facts: Facts) -> Problem | None:
    """Return what is wrong with a file whose own flag says another last slot than `label`."""
    if facts.last in (None, label):
        return None
    message = (
        f"expected {label} {as_said(said_by)}, got {facts.last} by the file's own flag of the final norm"
    )
    repair = "is it of another run than the others? take it away, or make it anew"
    return Problem(where=facts.slots[-1].name, kind="norm_state", message=message, repair=repair)


def flags_problems(labels: Sequence[str], said_by: str, facts: Sequence[Facts]) -> Iterator[Problem]:
    """Yield the problem of a last label that the flags of all files contradict, where they have flags."""
    (said, *others) = {one.last for one in facts}
    if others or said in (None, labels[-1]):
        return
    message = (
        f"expected {said}, as the flag of the final norm says in all of {len(facts)} files, got {labels[-1]} "
        f"{as_said(said_by)}"
    )
    right = [*labels[:-1], str(said)]
    write = (
        f"write {OPTION} {','.join(right)}" if len(set(right)) == len(right) else f"say {said} of the last"
    )
    repair = f"{write}, or make the files' flags right"
    yield Problem(where=facts[0].slots[-1].name, kind="norm_state", message=message, repair=repair)


def missing_labels(
    slots: Sequence[SlotFacts], found: Sequence[str] | None, last: str | None = None
) -> Problem:
    """Return the problem of no labels at all, with what to write where the target was asked.

    `last` is what the files' own flags say of the last slot, where they agree.
    """
    message = f"expected a tensor's name for each of {len(slots)} slots, got none; {in_order(slots)}"
    message += f"; the last is {last} by the files' own flag" if last else ""
    if found is None:
        repair = "say what each is, as --labels layer2,layer15,layer27,final; `strata identify` finds out"
    else:
        repair = f"held against the target they are --labels {','.join(found)}"
    return Problem(where=OPTION, kind="labels", message=message, repair=repair)
