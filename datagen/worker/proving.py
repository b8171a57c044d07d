"""What an audit set proves of an engine: the head on the stored `final`, and a witness beside each tensor.

Both read back what was stored, so that the whole way is proven. An audit set that is there already proves the
engine of a later run: a server that was started again may capture other layers since.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from datagen.checks.witness import (
    Reference,
    Tensors,
    agreement_problems,
    agreements,
    beside_witness,
    witness_of,
)
from datagen.engines.base import Engine, TieTelling
from datagen.engines.settings import EngineSettings
from datagen.store.part_reader import PartReader
from datagen.store.snapshot import Snapshot
from datagen.worker.making import UnitResult
from schemas.boundary import FINAL
from schemas.calibration import TensorAgreement
from schemas.problem import Problem
from schemas.schema import INPUT_IDS, TARGET_ARGMAX


@dataclass(frozen=True)
class AuditResult:
    """The audit part, what the head on the stored `final` chose, and how near the witness's states are.

    `tied` positions have two tokens with the same largest logit; of the others, `agreeing` are those where
    the head chose as the engine did; there are none in a set without `final`. `witness` is who bore witness,
    and `problems` what it does not confirm.
    """

    result: UnitResult
    positions: int = 0
    tied: int = 0
    agreeing: int = 0
    witness: str = "none"
    tensors: tuple[TensorAgreement, ...] = ()
    problems: tuple[Problem, ...] = ()


def prove_part(
    result: UnitResult, reader: PartReader, engine: Engine, settings: EngineSettings, reference: Reference
) -> AuditResult:
    """Hold an audit part, made by `engine` with its tensors, against the engine's head and a witness.

    Raises `OpeningError` when transformers is asked for by name as the witness and cannot run the model.
    """
    positions = tied = agreeing = 0
    samples = []
    for sample in reader.samples():
        place = sample.row_start, sample.n_tokens
        tensors = {name: reader.read_tensor(*place, name) for name in engine.schema.names}
        if FINAL in tensors:
            argmax = reader.read_tokens(*place, TARGET_ARGMAX.name)
            free = np.ones(len(argmax), bool)
            if isinstance(engine, TieTelling):
                free = ~engine.head_ties(tensors[FINAL])
            positions += argmax.size
            tied += int((~free).sum())
            agreeing += int((engine.head_argmax(tensors[FINAL]) == argmax)[free].sum())
        samples.append((reader.read_tokens(*place, INPUT_IDS.name).tolist(), tensors))
    witness = witness_of(engine, settings, reference)
    if witness is None or not samples:
        return AuditResult(result, positions, tied, agreeing)
    try:
        found = agreements(engine.schema, beside_witness(samples, witness.engine))
    finally:
        witness.close()
    problems = agreement_problems(engine.schema, found, result.n_tokens, settings)
    return AuditResult(result, positions, tied, agreeing, witness.said, found, tuple(problems))


@dataclass(frozen=True)
class HeldAgain:
    """How near an engine's states are to those of an audit set, and which tensors are others."""

    tensors: tuple[TensorAgreement, ...]
    problems: tuple[Problem, ...]


def prove_again(
    snapshot: Snapshot, engine: Engine, settings: EngineSettings, reference: Reference
) -> HeldAgain:
    """Hold what an engine captures now of the samples of an audit set against what is stored of them.

    What is not the same is shown to a witness that has every boundary, where there is one: it can name it.
    """
    samples = []

    def pairs() -> Iterator[tuple[Tensors, Tensors]]:
        for sample_id in snapshot.sample_ids:
            stored = snapshot.read(sample_id)
            ids = stored.tokens[INPUT_IDS.name].tolist()
            (capture,) = engine.submit([ids]).result()
            samples.append((ids, capture.tensors))
            yield capture.tensors, stored.tensors

    found = agreements(engine.schema, pairs())
    problems = agreement_problems(engine.schema, found, snapshot.version.n_tokens, settings)
    if problems and (witness := witness_of(engine, settings, reference)) is not None and witness.is_another:
        try:
            seen = agreements(engine.schema, beside_witness(samples, witness.engine))
        finally:
            witness.close()
        named = agreement_problems(engine.schema, seen, snapshot.version.n_tokens, settings)
        problems = [*named, *(one for one in problems if one.where not in {each.where for each in named})]
    return HeldAgain(found, tuple(problems))
