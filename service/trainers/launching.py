"""A trainer is launched: its wiring judged, its folder prepared, its plug-in point filled, its own main run.

All of it in this process, so that the trainer's own words, workers and ranks stay its own. Nothing of the
trainer's packages is loaded before it is known that they are there.
"""

import importlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from schemas.command import UsageError
from schemas.problem import Problem
from schemas.trainer_wiring import tensor_problems, trained_card, trainer_wiring
from service.trainers.errors import NotInstalledError, TrainerError, TrainingStoppedError, VerifierError
from service.trainers.held import KEY_VARIABLE, Held, open_held
from service.trainers.prepared import Meant, Prepared
from service.trainers.verifier import FLAG, shape_problems, weights_problems

RELEASE = "0.9.0"
TRAINER = f"speculators=={RELEASE}"
ITS_PROGRAM = "speculators train"
PACKAGE = "strata-hidden-states"
SAVED_WHEN_STOPPED = "interrupted"
"""Its checkpoint's name then, beside those of epochs by number."""


@dataclass(frozen=True)
class Asked:
    """What is trained on: a source as `service.trainers.held` writes it, where it is prepared, how wired."""

    source: str
    folder: Path
    fc: tuple[str, ...] | None = None
    target: str | None = None
    splits: tuple[str, ...] = ()


@dataclass(frozen=True)
class Launch:
    """A trainer that may begin: its words are whole, and say nothing else than the dataset."""

    held: Held
    prepared: Prepared
    words: tuple[str, ...]
    notes: tuple[Problem, ...]
    main: Callable[[Sequence[str]], None]

    def run(self) -> None:
        """Run the trainer's own main to its end."""
        self.main(self.words)


def plan_speculators(asked: Asked, words: Sequence[str]) -> Launch:
    """Return the launch of speculators' trainer with `words`; the folder is prepared, nothing is trained.

    Raises `NotInstalledError` without its packages, `UsageError` for words that the trainer does not take,
    `TrainerError` with every problem of the wiring, of the folder or of the words' sense, `VerifierError` for
    a model that cannot be read, and what the store or the client raise.
    """
    backend = _loaded("service.trainers.speculators_backend")
    backend.register()
    held = open_held(asked.source, os.environ.get(KEY_VARIABLE) or None)
    meant, notes = judged(held, asked)
    trainer = _Speculators()
    known = trainer.read(words)
    arguments = _loaded("service.trainers.speculators_arguments")
    card = meant.card
    # Its config first: where the hub answers, that moves its cache to the commit that is trained with.
    shape = trainer.shape(known.values)
    weights = tuple(weights_problems(card.target, known.values["verifier_name_or_path"]))
    notes += tuple(problem for problem in weights if problem.severity == "note")
    wrong = [
        *shape_problems(card.target, shape),
        *(problem for problem in weights if problem.severity == "error"),
        *arguments.contradictions(known, card.wiring, asked.folder),
    ]
    if wrong:
        raise TrainerError("the trainer is told otherwise than the dataset is wired", wrong)
    prepared = _loaded("service.trainers.preparing").prepare(asked.folder, held, meant)
    whole = arguments.completed(words, known, prepared, held.source)
    return Launch(held, prepared, tuple(whole), notes, trainer.main)


def judged(held: Held, asked: Asked) -> tuple[Meant, tuple[Problem, ...]]:
    """Return what a folder is prepared for, judged against the dataset, and what a person should know.

    Raises `TrainerError` with every problem.
    """
    facts = held.facts
    names = [*(asked.fc or ()), *([asked.target] if asked.target else [])]
    problems = tuple(tensor_problems(facts.schema.target, names))
    if not problems:
        wiring, report, problems = trainer_wiring(facts, TRAINER, asked.fc, asked.target)
        card = trained_card(report) if wiring is not None else None
        if card is not None:
            return Meant(card, asked.splits), tuple(report.notes)
    raise TrainerError(f"{facts.reference} is not what {TRAINER} is to take", problems)


class _Speculators:
    """speculators' own code, as it is installed; raises `NotInstalledError` where it is not."""

    def __init__(self) -> None:
        _check_release()
        # Its choices of backends are taken from the registry when it is imported.
        self._resolution: Any = _loaded("speculators.train.config.resolution")
        self._config: Any = _loaded("speculators.train.config").TrainConfig
        self._destinations = _loaded("speculators.train.config.schema").CONFIG_DESTS
        self._settings: Any = _loaded("service.trainers.speculators_arguments").Settings

    def read(self, words: Sequence[str]) -> Any:
        """Return what the words and the `--config` that they name say, by its own parser.

        Raises `UsageError` for a word that it does not know, and for what it misses.
        """
        parser = self._resolution.build_parser()
        parser.prog, parser.error = ITS_PROGRAM, _misused
        given = vars(parser.parse_args(list(words)))
        cli = {name: value for name, value in given.items() if name in self._destinations}
        rest = {
            name: value
            for name, value in given.items()
            if name not in cli and name not in ("config", "dump_config")
        }
        try:
            config = self._config.from_sources(
                cli=cli, config_path=given["config"], argv=list(words), backend_cli=rest
            )
        except ValueError as error:
            raise _usage_error(str(error)) from error
        said = frozenset(name for name, by in config.provenance.items() if by != "default")
        return self._settings(config.flatten(), said)

    def shape(self, values: dict[str, Any]) -> Any:
        """Return the config of the model that it takes the head and the norm from."""
        read = _loaded("speculators.models.utils").get_verifier_config
        try:
            return read(values["verifier_name_or_path"], trust_remote_code=values["trust_remote_code"])
        except (OSError, ValueError) as error:
            message = " ".join(str(error).split())
            repair = "give the model's folder, or the id of one that the hub, or its cache here, has"
            problem = Problem(where=FLAG, kind="target", message=message, repair=repair)
            raise VerifierError("the target's config cannot be read", [problem]) from error

    def main(self, words: Sequence[str]) -> None:
        """Train; raises `TrainingStoppedError` where a signal ended it: its own main is content."""
        stopped_by = _signals_of(_loaded("speculators.train.graceful_shutdown"))
        config = self._config.resolve(list(words))
        _loaded("speculators.train.cli").main(config)
        if stopped_by:
            raise _stopped(stopped_by[0], Path(config.flatten()["save_path"]) / SAVED_WHEN_STOPPED)


def _signals_of(shutdown: Any) -> list[str]:
    """Let the trainer's own handler of signals say which it heard; it tells nobody but its log."""
    heard: list[str] = []
    own: type[Exception] = shutdown.TrainingInterruptedError

    class Told(own):  # type: ignore[misc, valid-type]
        def __init__(self, name: str) -> None:
            super().__init__(name)
            heard.append(name)

    shutdown.TrainingInterruptedError = Told
    return heard


def _stopped(by: str, saved: Path) -> TrainingStoppedError:
    message = f"expected to train to the end, got {by}"
    repair = (
        f"to go on, rename {saved} to an epoch's number, and give the same command: the trainer begins with "
        "the epoch after that one, and the rest of the one that was stopped is not seen"
        if saved.is_dir()
        else "nothing was saved: give the same command, which goes on from the last checkpoint there is"
    )
    problem = Problem(where=ITS_PROGRAM, kind="stopped", message=message, repair=repair)
    return TrainingStoppedError("the training was stopped", [problem])


def _usage_error(message: str) -> UsageError:
    repair = f"see `{ITS_PROGRAM} --help`"
    problem = Problem(where=ITS_PROGRAM, kind="usage", message=message, repair=repair)
    return UsageError("the trainer does not take these arguments", [problem])


def _misused(message: str) -> NoReturn:
    """Stand in for argparse's own `error`, which prints every argument that there is and ends the process."""
    raise _usage_error(message)


def _check_release() -> None:
    found = version("speculators") if _is_there("speculators") else None
    if found is None:
        raise _not_installed("speculators")
    if found != RELEASE:
        message = f"expected release {RELEASE}, whose plug-in point and formats are known, got {found}"
        repair = f"pip install {TRAINER} hs-connectors=={RELEASE}"
        problem = Problem(where="speculators", kind="release", message=message, repair=repair)
        raise NotInstalledError("another release of the trainer", [problem])


def _is_there(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _loaded(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing in ("service", "schemas", "datagen"):
            raise
        raise _not_installed(missing) from error


def _not_installed(missing: str) -> NotInstalledError:
    message = f"expected the packages of the extra 'speculators', got no {missing}"
    repair = (
        f"pip install '{PACKAGE}[speculators]'; where that would replace the machine's torch: "
        f"pip install --no-deps {TRAINER} hs-connectors=={RELEASE}, then what they miss"
    )
    problem = Problem(where=missing, kind="extra", message=message, repair=repair)
    return NotInstalledError("the trainer is not installed", [problem])
