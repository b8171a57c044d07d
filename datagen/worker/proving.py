"""What an audit part proves of its engine: the head on the stored `final`, and a witness beside each tensor.

Both read back what was stored, so that the whole way is proven.
"""

from dataclasses import dataclass

import numpy as np

from datagen.checks.witness import Reference, agreement_problems, agreements, witness_of
from datagen.engines.base import Engine, TieTelling
from datagen.engines.settings import EngineSettings
from datagen.store.part_reader import PartReader
from datagen.worker.making import UnitResult
from schemas.boundary import FINAL
from schemas.calibration import TensorAgreement
from schemas.problem import Problem
from schemas.schema import INPUT_IDS, TARGET_ARGMAX


@dataclass(frozen=True)
class AuditResult:
    """The audit part, what the head on the stored `final` chose, and how near the witness's states are.

    `tied` positions have two tokens with the same largest logit; of the others, `agreeing` are those where
    the head chose as the engine did. `witness` is who bore witness, and `problems` what it does not confirm.
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
    """Hold an audit part, made by `engine` with every boundary, against the engine's head and a witness.

    Raises `OpeningError` when transformers is asked for as the witness and cannot load the model.
    """
    positions = tied = agreeing = 0
    samples = []
    for sample in reader.samples():
        place = sample.row_start, sample.n_tokens
        tensors = {name: reader.read_tensor(*place, name) for name in engine.schema.names}
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
        found = agreements(engine.schema, samples, witness.engine)
    finally:
        witness.close()
    problems = agreement_problems(engine.schema, found, positions, settings)
    return AuditResult(result, positions, tied, agreeing, witness.said, found, tuple(problems))
