"""States of another sample, or of a token early or late, in one sample of many: caught on the real SmolLM2.

What is captured has no `embed`, and the texts share no beginning: only what the last states say is left.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from datagen.checks import Binding, Calibration, calibrated
from datagen.engines.base import Capture, Engine
from datagen.engines.ends import FilesEnds, ends_of
from datagen.engines.opening import open_engine, read_target
from datagen.engines.settings import EngineSettings
from datagen.engines.target_head import TargetHead
from datagen.planning.audit import audit_schema, read_audit, read_calibration
from datagen.planning.units import Unit, batches
from datagen.prompts.prompt import Prompt
from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from datagen.worker.making import PartMaker, UnitResult
from schemas.schema import Schema
from tests.datagen.faulty_engine import Fault, FaultyEngine
from tests.datagen.prompt_builders import prompt_of
from tests.datagen.template import real

LENGTH = 40
N_PROMPTS, N_AUDITED = 24, 6
BATCH_TOKENS = 16 * LENGTH
SETTINGS = EngineSettings(model=str(real.SMOLLM2), device="cpu", threads=1)


@dataclass(frozen=True)
class Bench:
    """A loaded target, its calibration and a unit's prompts."""

    engine: Engine
    calibration: Calibration
    prompts: tuple[Prompt, ...]
    binding: Binding

    @property
    def order(self) -> list[Prompt]:
        """The prompts in the order of capture."""
        return [prompt for batch in batches(self.prompts, BATCH_TOKENS) for prompt in batch]

    def made(self, folder: Path, fault: Fault, binding: Binding | None = None) -> UnitResult:
        maker = PartMaker(
            FaultyEngine(self.engine, fault),
            LocalDoor(folder),
            "small",
            "run",
            BATCH_TOKENS,
            calibration=self.calibration,
            binding=binding or self.binding,
        )
        return maker.make(Unit("0", self.prompts))


def _answers(count: int) -> list[list[int]]:
    """Return the first tokens of real answers, no two of which begin alike."""
    tokenizer = real.tokenizer("smollm2")
    found: dict[int, list[int]] = {}
    with real.sharegpt().open(encoding="utf-8") as lines:
        for line in lines:
            turns = [turn["value"] for turn in json.loads(line)["conversations"] if turn["from"] == "gpt"]
            for text in turns:
                ids = tokenizer(text).input_ids[:LENGTH]
                if len(ids) == LENGTH and ids[0] not in found:
                    found[ids[0]] = ids
            if len(found) >= count:
                break
    return list(found.values())[:count]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    answers = _answers(N_AUDITED + N_PROMPTS)
    target = read_target(SETTINGS)
    every = audit_schema(target, "bfloat16")
    engine = open_engine(SETTINGS, Schema.declare(target, ("layer15", "final"), "bfloat16"))
    door = LocalDoor(tmp_path_factory.mktemp("audit"))
    dataset = Dataset.create(door, "small.audit", every, exist_ok=False)
    audits = PartMaker(
        engine.handing_out(every), door, "small.audit", "run", 512, recapture=False, with_argmax=True
    )
    made = audits.make(Unit("audit", tuple(map(prompt_of, answers[:N_AUDITED]))))
    assert made.part is not None
    dataset.commit([made.part], [], run_id="run")
    snapshot = dataset.snapshot()
    calibration = read_calibration(snapshot, read_audit(snapshot))
    binding = calibrated(ends_of(engine, SETTINGS), engine.schema, calibration.audited)
    prompts = [prompt_of(ids, source=f"chats:{n}") for n, ids in enumerate(answers[N_AUDITED:])]
    # Of many lengths, two of each, as a batch of real conversations is.
    cut = [
        prompt_of(prompt.input_ids[: LENGTH - n // 2].tolist(), 2, prompt.source)
        for n, prompt in enumerate(prompts)
    ]
    yield Bench(engine, calibration, tuple(cut), binding)
    engine.close()


def of_sample(prompt: Prompt, change: Callable[[Sequence[Capture], int], Capture]) -> Fault:
    """Return the fault of one sample, in its batch alone: captured again it comes right."""

    def fault(captures: Sequence[Capture]) -> Sequence[Capture]:
        wanted = prompt.input_ids
        for at, capture in enumerate(captures):
            if len(captures) > 1 and np.array_equal(capture.token_ids, wanted):
                changed = replace(change(captures, at), token_ids=wanted)
                return [*captures[:at], changed, *captures[at + 1 :]]
        return captures

    return fault


def test_the_right_engine_is_bound_by_its_final_alone(bench: Bench, tmp_path: Path) -> None:
    assert bench.binding.said.startswith("by final (own next tokens stand out by ")
    assert bench.binding.typical > 2
    result = bench.made(tmp_path, lambda captures: captures)
    assert (result.quarantined, result.wrong) == ((), ())
    assert result.binding.bound >= N_PROMPTS - 2
    assert (result.binding.bound + result.binding.again, result.binding.unbound) == (N_PROMPTS, 0)


def test_the_models_files_bind_as_the_loaded_model_does(bench: Bench) -> None:
    files = FilesEnds(TargetHead.of(real.SMOLLM2, dtype="bfloat16"))
    found = calibrated(files, bench.engine.schema, bench.calibration.audited)
    assert found.typical == pytest.approx(bench.binding.typical, rel=1e-3)


def test_two_samples_swapped_in_the_middle_of_a_batch_are_refused_by_whose_states_they_have(
    bench: Bench, tmp_path: Path
) -> None:
    one, other = bench.order[6:8]
    assert one.n_tokens == other.n_tokens

    def fault(captures: Sequence[Capture]) -> Sequence[Capture]:
        swapped = list(captures)
        if len(captures) > 8 and np.array_equal(captures[6].token_ids, one.input_ids):
            swapped[6] = replace(captures[7], token_ids=captures[6].token_ids)
            swapped[7] = replace(captures[6], token_ids=captures[7].token_ids)
        return swapped

    result = bench.made(tmp_path, fault)
    assert result.part is not None
    assert result.part.record.n_samples == N_PROMPTS - 2
    refused = {row.source: row for row in result.quarantined}
    assert set(refused) == {one.source, other.source}
    for mine, theirs in ((one, other), (other, one)):
        told = refused[mine.source]
        assert told.reason == "wrong_content"
        assert told.detail.startswith(
            "final: expected states of its own tokens, got states that predict another sample's: those of "
            f"{theirs.source} stand out by "
        )


@pytest.mark.parametrize("step", [1, -1])
def test_ids_shifted_by_one_in_one_sample_are_refused_after_a_second_pass(
    bench: Bench, tmp_path: Path, step: int
) -> None:
    """The engine ran other ids than it says: a token early, and a token late behind a foreign one."""
    shifted = bench.order[9]
    ids = np.roll(shifted.input_ids, -step)

    def ran(captures: Sequence[Capture], at: int) -> Capture:
        (capture,) = bench.engine.submit([ids.tolist()]).result()
        return capture

    result = bench.made(tmp_path, of_sample(shifted, ran))
    assert result.part is not None
    (row,) = result.quarantined
    assert (row.source, row.reason) == (shifted.source, "wrong_content")
    assert "final: expected the states that a second pass of the same" in row.detail
    assert "layer15: expected the states that a second pass" in row.detail
    assert result.binding.again == 1


def test_states_of_nobody_here_are_refused_after_a_second_pass(bench: Bench, tmp_path: Path) -> None:
    """What an audit sample left in a buffer: no sample of the part says what it goes on with."""
    stale = bench.order[4]
    left = bench.calibration.audited[0].token_ids[: stale.n_tokens].tolist()
    result = bench.made(
        tmp_path, of_sample(stale, lambda _captures, _at: bench.engine.submit([left]).result()[0])
    )
    (row,) = result.quarantined
    assert row.source == stale.source
    assert "they look like no tensor of these tokens" in row.detail


def test_without_the_binding_they_pass(bench: Bench, tmp_path: Path) -> None:
    """So that the tests above try the binding, not another check."""
    one = bench.order[6]
    swap = of_sample(one, lambda captures, at: captures[at + 1])
    off = replace(bench.binding, states=None)
    result = bench.made(tmp_path, swap, off)
    assert result.part is not None
    assert result.quarantined == ()
    assert result.binding.unbound == N_PROMPTS
