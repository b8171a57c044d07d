"""Identification on a tiny target: every kind of file, and every kind of fault in one."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from datagen.engines.settings import EngineSettings
from datagen.replay.identify import chosen_files, dtype_of_files, identify
from datagen.replay.identify_answer import Identified
from datagen.replay.identify_sources import ModelSource
from schemas.boundary import all_names
from schemas.problem import Problem
from tests.datagen.engines import tiny_models
from tests.datagen.engines.tiny_models import VOCAB
from tests.datagen.replay.foreign_builders import WRITERS, States, Write, bare, listed, stacked

NAMES = ("embed", "layer1", "layer2", "final")
LENGTHS = (60, 45, 52)
Rows = NDArray[np.generic]


def token_ids(length: int, seed: int = 0) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(1, VOCAB, length)]


def states_of(source: ModelSource, ids: Sequence[int]) -> dict[str, Rows]:
    states = source.states(np.asarray(ids, np.int64))
    assert not isinstance(states, Problem)
    return dict(states)


def write(
    folder: Path, source: ModelSource, names: Sequence[str] = NAMES, write_one: Write = stacked
) -> list[Path]:
    """Write a file a sample."""
    samples = [token_ids(length, seed) for seed, length in enumerate(LENGTHS)]
    return [
        write_one(folder / f"hs_{number}", ids, states_of(source, ids), names)
        for number, ids in enumerate(samples)
    ]


def names_of(found: Identified) -> list[str | None]:
    return [slot.found.name if slot.found else None for slot in found.slots]


def kinds_of(found: Identified) -> set[str]:
    return {problem.kind for problem in found.errors}


@pytest.mark.parametrize("layout", WRITERS)
def test_every_layout_is_read_and_every_slot_named(
    layout: str, tmp_path: Path, in_float32: ModelSource
) -> None:
    files = write(tmp_path, in_float32, NAMES, WRITERS[layout])
    found = identify(files, in_float32)
    assert names_of(found) == list(NAMES) * 3
    assert not found.errors
    for slot in found.slots:
        assert slot.layout.partition(" (")[0] in layout
        assert slot.found is not None
        assert slot.found.n_rows == slot.n_tokens
        assert slot.found.p99 == 0
        assert slot.found.rival_median is not None
        assert slot.found.rival_median > 0.05


def test_all_tensors_are_told_apart_in_both_dtypes(
    tmp_path: Path, in_float32: ModelSource, in_bfloat16: ModelSource
) -> None:
    """A file in either dtype against a target in either: what rounds alone, and what a cast does."""
    names = all_names(3)
    for made in (in_float32, in_bfloat16):
        files = write(tmp_path, made, names)
        assert dtype_of_files(files) == made.dtype
        for held in (in_float32, in_bfloat16):
            found = identify(files, held)
            assert names_of(found) == list(names) * 3
            assert not found.errors
            assert all(
                slot.found and (slot.found.margin is None or slot.found.margin > 3) for slot in found.slots
            )


def test_a_last_state_that_is_normed_is_told_and_noted(tmp_path: Path, in_float32: ModelSource) -> None:
    found = identify(write(tmp_path, in_float32, ("layer1", "layer2", "final_normed")), in_float32)
    assert names_of(found) == ["layer1", "layer2", "final_normed"] * 3
    assert not found.errors
    told = {problem.message for slot in found.slots for problem in slot.problems}
    assert told == {"speculators takes this slot for final, and it is final_normed"}


def damaged(
    folder: Path,
    source: ModelSource,
    damage: Callable[[dict[str, Rows], States], None],
    write_one: Write = listed,
) -> Identified:
    """Identify three files; the first one's states were `damage`d (its own states, another sample's)."""
    samples = [token_ids(length, seed) for seed, length in enumerate(LENGTHS)]
    states = [states_of(source, ids) for ids in samples]
    damage(states[0], states[1])
    files = [
        write_one(folder / f"data_{number}", ids, held, NAMES)
        for number, (ids, held) in enumerate(zip(samples, states, strict=True))
    ]
    return identify(files, source)


@pytest.mark.parametrize("offset", [1, -1, 3])
def test_a_slot_that_is_shifted_as_a_whole(offset: int, tmp_path: Path, in_bfloat16: ModelSource) -> None:
    def shift(own: dict[str, Rows], _: States) -> None:
        own["layer2"] = np.roll(own["layer2"], -offset, axis=0)

    found = damaged(tmp_path, in_bfloat16, shift)
    assert names_of(found) == list(NAMES) * 3
    assert kinds_of(found) == {"shifted"}
    run = max(found.slots[2].runs, key=lambda run: run.n_rows)
    assert (run.kind, run.offset, run.n_rows) == ("moved", offset, LENGTHS[0] - abs(offset))
    assert {problem.where for problem in found.errors} == {found.slots[2].where}
    assert f"(shifted by {offset:+d})" in str(found.errors)


def test_rows_that_are_shifted_from_one_on(tmp_path: Path, in_float32: ModelSource) -> None:
    def stale(own: dict[str, Rows], _: States) -> None:
        own["layer1"][40:] = own["layer1"][39:-1].copy()

    found = damaged(tmp_path, in_float32, stale)
    assert [(run.first, run.last, run.kind, run.offset) for run in found.slots[1].runs] == [
        (0, 39, "right", 0),
        (40, 59, "moved", -1),
    ]
    assert "rows 40 to 59: expected the state of each row's own token, got that of the token before" in str(
        found.errors[0]
    )


def test_rows_of_another_sample_in_the_middle(tmp_path: Path, in_bfloat16: ModelSource) -> None:
    """A third of the rows is foreign, as a norm over the whole tensor would hardly show."""

    def mix(own: dict[str, Rows], other: States) -> None:
        own["layer2"][20:40] = other["layer2"][5:25]

    found = damaged(tmp_path, in_bfloat16, mix)
    assert names_of(found) == list(NAMES) * 3
    assert kinds_of(found) == {"other_sample"}
    (foreign,) = [run for run in found.slots[2].runs if run.kind == "sample"]
    assert (foreign.first, foreign.last, foreign.offset) == (20, 39, -15)
    assert foreign.file is not None
    assert foreign.file.endswith("data_1.pt")
    found_layer2 = found.slots[2].found
    assert found_layer2 is not None
    assert found_layer2.standing_p99 is not None
    assert found_layer2.p99 <= 0.02
    assert found_layer2.standing_p99 > 0.5


def test_a_sample_that_has_anothers_states(tmp_path: Path, in_float32: ModelSource) -> None:
    def swap(own: dict[str, Rows], other: States) -> None:
        for name in NAMES:
            own[name] = np.concatenate([other[name], other[name][:15]])

    found = damaged(tmp_path, in_float32, swap)
    assert names_of(found)[:4] == list(NAMES)
    assert kinds_of(found) == {"other_sample"}
    assert {run.file for slot in found.slots[:4] for run in slot.runs} == {str(tmp_path / "data_1.pt")}


def test_a_row_in_its_place_is_not_given_to_another_sample_that_begins_alike(
    tmp_path: Path, in_float32: ModelSource
) -> None:
    """Stale from the second row on; the first token is that of the other file too, and so is its state."""
    ids = [token_ids(60), [token_ids(60)[0], *token_ids(40, 1)]]
    states = [states_of(in_float32, one) for one in ids]
    for name in NAMES:
        states[0][name] = np.concatenate([states[0][name][:1], states[0][name][:-1]])
    files = [
        listed(tmp_path / f"data_{number}", one, held, NAMES)
        for number, (one, held) in enumerate(zip(ids, states, strict=True))
    ]
    found = identify(files, in_float32)
    assert kinds_of(found) == {"shifted"}
    for slot in found.slots[: len(NAMES)]:
        assert {run.file for run in slot.runs} == {None}


def test_another_layers_rows(tmp_path: Path, in_float32: ModelSource) -> None:
    def mix(own: dict[str, Rows], _: States) -> None:
        own["layer2"][10:13] = own["layer1"][10:13]

    found = damaged(tmp_path, in_float32, mix)
    assert [str(problem).partition(": ")[2] for problem in found.errors] == [
        "hidden_states[2]: rows 10 to 12: expected layer2, got layer1"
    ]


def test_slots_that_are_swapped_in_one_file(tmp_path: Path, in_float32: ModelSource) -> None:
    def swap(own: dict[str, Rows], _: States) -> None:
        own["layer1"], own["layer2"] = own["layer2"], own["layer1"]

    found = damaged(tmp_path, in_float32, swap)
    assert names_of(found)[:4] == ["embed", "layer2", "layer1", "final"]
    assert kinds_of(found) == {"mixed_up"}
    assert "hidden_states[1]: expected layer1 as in 2 files, got layer2 in" in str(found.errors[0])


@pytest.mark.parametrize(
    ("kept", "told"),
    [(slice(0, 50), "the last 10 were cut"), (slice(12, 60), "the first 12 were cut")],
    ids=["end", "beginning"],
)
def test_slots_that_were_cut(kept: slice, told: str, tmp_path: Path, in_float32: ModelSource) -> None:
    """A prefix cache hands out the end of a sample only; a limit, or a full disk, the beginning."""

    def cut(own: dict[str, Rows], _: States) -> None:
        for name in NAMES:
            own[name] = own[name][kept]

    found = damaged(tmp_path, in_float32, cut)
    assert names_of(found) == list(NAMES) * 3
    cuts = [problem for problem in found.errors if problem.kind == "cut"]
    assert len(cuts) == 4
    assert all(told in problem.message for problem in cuts)


def test_zeros_nan_and_noise(tmp_path: Path, in_float32: ModelSource) -> None:
    def spoil(own: dict[str, Rows], _: States) -> None:
        noise = np.random.default_rng(1).normal(size=own["embed"].shape).astype(np.float32)
        own["embed"][5:9] = 0
        own["layer1"][7, 3] = np.nan
        own["layer2"] = noise
        own["final"][50:] = noise[50:] * 10

    found = damaged(tmp_path, in_float32, spoil)
    assert names_of(found)[:4] == ["embed", "layer1", None, "final"]
    told = [problem.message for problem in found.errors]
    assert told[0] == "rows 5 to 8: expected embed, got zeros"
    assert told[1] == "row 7: expected layer1, got NaN or Inf"
    assert told[2].startswith("expected a tensor of the target, got 60 rows that match nothing")
    assert told[3].startswith("rows 50 to 59: expected final, got rows that match nothing")
    assert len(told) == 4


def test_the_states_of_another_model_match_nothing(
    tmp_path: Path, in_float32: ModelSource, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = np.random.default_rng(3)

    def another(own: dict[str, Rows], _: States) -> None:
        turn = np.linalg.qr(rng.normal(size=(48, 48)))[0].astype(np.float32)
        for name in NAMES:
            own[name] = own[name].astype(np.float32) @ turn

    found = damaged(tmp_path, in_float32, another)
    assert names_of(found)[:4] == [None] * 4
    assert kinds_of(found) == {"nothing"}


def test_a_file_without_ids_is_looked_for_in_the_others(tmp_path: Path, in_float32: ModelSource) -> None:
    files = write(tmp_path, in_float32)
    ids = token_ids(LENGTHS[1], 1)
    files.append(bare(tmp_path / "bare", ids, states_of(in_float32, ids), NAMES))
    found = identify(files, in_float32)
    assert names_of(found)[12:] == list(NAMES)
    assert not found.errors
    assert "its rows are of the tokens of" in str(found.slots[-1].problems)


def test_a_width_that_does_not_fit_and_ids_that_are_none(tmp_path: Path, in_float32: ModelSource) -> None:
    ids = token_ids(20)
    states = {"final": np.ones((20, 47), np.float32)}
    narrow = stacked(tmp_path / "narrow", ids, states, ("final",))
    foreign = stacked(
        tmp_path / "foreign", [VOCAB] * 20, {"final": np.ones((20, 48), np.float32)}, ("final",)
    )
    missing = tmp_path / "missing.pt"
    found = identify([narrow, foreign, missing], in_float32)
    told = sorted(problem.message for problem in found.problems)
    assert told == [
        "expected a file, got none of this name",
        "expected a multiple of the target's width 48, got 47",
        "expected ids from 0 to 210, got 211",
    ]


def test_norms_alone_name_nothing(tmp_path: Path, in_float32: ModelSource) -> None:
    ids = token_ids(60) + token_ids(40)
    states = states_of(in_float32, ids)
    found = identify([listed(tmp_path / "data_0", ids, states, NAMES)], None)
    assert names_of(found) == [None] * 4
    assert not found.errors
    assert "the same token has the same norm wherever it stands, as in `embed`" in found.slots[0].allowed
    assert any("not `embed`" in told for told in found.slots[3].allowed)
    assert all(slot.norms is not None and slot.norms.median > 0 for slot in found.slots)


def test_norms_alone_still_see_nan_and_cuts(tmp_path: Path, in_float32: ModelSource) -> None:
    ids = token_ids(30)
    states = states_of(in_float32, ids)
    states["layer1"][3] = np.inf
    states["final"] = states["final"][:20]
    found = identify([listed(tmp_path / "data_0", ids, states, NAMES)], None)
    assert kinds_of(found) == {"not_finite", "cut"}


def test_of_a_folder_some_files_are_taken_and_that_is_said(tmp_path: Path, in_float32: ModelSource) -> None:
    for number in range(12):
        stacked(tmp_path / f"hs_{number}", [1, 2], {"final": np.ones((2, 48), np.float32)}, ("final",))
    (tmp_path / "token_freq.pt").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("no file of tensors")
    files, problems = chosen_files([tmp_path], 4)
    assert [file.stem for file in files] == ["hs_0", "hs_4", "hs_7", "hs_11"]
    assert [problem.severity for problem in problems] == ["note"]
    assert chosen_files([tmp_path / "absent", tmp_path], 99)[0][0] == tmp_path / "absent"


@pytest.mark.parametrize("family", ["gemma3", "qwen3_moe"])
def test_other_families_across_dtypes(family: str, tmp_path: Path) -> None:
    """A norm of `1 + w`, a scaled embedding; experts, whose choice is a matter of rounding."""
    folder = str(tiny_models.save(family, tmp_path / "model"))
    made, held = (
        ModelSource.of(EngineSettings(model=folder, dtype=dtype, device="cpu"))
        for dtype in ("bfloat16", "float32")
    )
    names = all_names(made.target.n_layers)
    found = identify(write(tmp_path, made, names), held)
    assert names_of(found) == list(names) * 3
    assert not found.errors
    assert held.routes == (family == "qwen3_moe")
