"""What every engine does, whatever runs behind it: a suite that each engine's test class inherits.

A subclass gives the fixture `engine`, opened with a schema that has `final` among its tensors, and may widen
`NORM_TOLERANCE` or `SAME_TOKEN_TOLERANCE`.
"""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from datagen.engines.base import Capture, Engine
from datagen.engines.errors import BatchError, EngineError, OpeningError
from schemas.boundary import all_names
from schemas.schema import DType, Schema, TensorFacts
from schemas.target import Target

LENGTHS = (5, 1, 17, 2, 17, 3)


def wide(rows: NDArray[np.generic]) -> NDArray[np.float32]:
    return rows.astype(np.float32)


def token_errors(left: NDArray[np.generic], right: NDArray[np.generic]) -> NDArray[np.float32]:
    """Return the relative error a token, [T]."""
    difference = np.linalg.norm(wide(left) - wide(right), axis=-1)
    return np.asarray(difference / np.maximum(np.linalg.norm(wide(right), axis=-1), 1e-20), np.float32)


class EngineContract:
    NORM_TOLERANCE = 1e-4
    SAME_TOKEN_TOLERANCE = 0.0

    @pytest.fixture
    def batch(self, engine: Engine) -> list[list[int]]:
        rng = np.random.default_rng(7)
        return [rng.integers(0, engine.target.vocab_size, length).tolist() for length in LENGTHS]

    def test_hands_out_the_schema_in_the_order_of_submission(
        self, engine: Engine, batch: list[list[int]]
    ) -> None:
        captures = engine.submit(batch).result()
        assert [capture.token_ids.tolist() for capture in captures] == batch
        for ids, capture in zip(batch, captures, strict=True):
            facts = {name: TensorFacts(str(rows.dtype), rows.shape) for name, rows in capture.tensors.items()}
            assert list(engine.schema.problems(len(ids), facts)) == []
            assert tuple(capture.tensors) == engine.schema.names
            assert all(rows.flags.c_contiguous for rows in capture.tensors.values())
            assert capture.token_ids.dtype == np.int32
            assert capture.argmax is None

    def test_norms_are_those_of_the_rows(self, engine: Engine, batch: list[list[int]]) -> None:
        for capture in engine.submit(batch).result():
            assert tuple(capture.norms) == engine.schema.names
            for name, rows in capture.tensors.items():
                assert capture.norms[name].dtype == np.float32
                expected = np.linalg.norm(wide(rows), axis=-1)
                np.testing.assert_allclose(capture.norms[name], expected, rtol=self.NORM_TOLERANCE)

    def test_values_are_finite_and_differ_by_tensor(self, engine: Engine, batch: list[list[int]]) -> None:
        (capture, *_) = engine.submit(batch).result()
        values = [wide(rows) for rows in capture.tensors.values()]
        assert all(np.isfinite(rows).all() for rows in values)
        assert all(rows.any() for rows in values)
        for index, rows in enumerate(values):
            assert not any(np.array_equal(rows, other) for other in values[:index])

    def test_the_same_batch_gives_the_same_bytes(self, engine: Engine, batch: list[list[int]]) -> None:
        first, second = engine.submit(batch).result(), engine.submit(batch).result()
        for one, other in zip(first, second, strict=True):
            for name in engine.schema.names:
                assert one.tensors[name].tobytes() == other.tensors[name].tobytes()

    def test_neighbours_do_not_matter(self, engine: Engine, batch: list[list[int]]) -> None:
        together = engine.submit(batch).result()
        for ids, capture in zip(batch, together, strict=True):
            (alone,) = engine.submit([ids]).result()
            for name in engine.schema.names:
                errors = token_errors(capture.tensors[name], alone.tensors[name])
                assert errors.max() <= self.SAME_TOKEN_TOLERANCE, name

    def test_a_prefix_has_the_states_that_it_has_in_the_whole(self, engine: Engine) -> None:
        ids = [int(value) % engine.target.vocab_size for value in range(3, 60, 4)]
        whole, prefix = engine.submit([ids, ids[:6]]).result()
        for name in engine.schema.names:
            errors = token_errors(prefix.tensors[name], whole.tensors[name][:6])
            assert errors.max() <= self.SAME_TOKEN_TOLERANCE, name

    def test_another_token_has_other_states(self, engine: Engine) -> None:
        one, other = engine.submit([[1, 2, 3], [1, 2, 4]]).result()
        for name in engine.schema.names:
            assert one.tensors[name][2].tobytes() != other.tensors[name][2].tobytes()

    def test_two_batches_may_be_under_way(self, engine: Engine, batch: list[list[int]]) -> None:
        first = engine.submit(batch[:3])
        second = engine.submit(batch[3:])
        later = second.result()
        kept = [_bytes(capture) for capture in first.result()]
        engine.submit(batch).result()
        alone = [_bytes(capture) for capture in engine.submit(batch[:3]).result()]
        assert [capture.token_ids.tolist() for capture in later] == batch[3:]
        assert kept == alone

    def test_states_outlive_later_batches(self, engine: Engine, batch: list[list[int]]) -> None:
        captures = engine.submit(batch).result()
        before = [_bytes(capture) for capture in captures]
        for _ in range(3):
            engine.submit([[1] * 17] * 6).result()
        assert [_bytes(capture) for capture in captures] == before

    def test_argmax_is_the_heads_choice_on_final(self, engine: Engine, batch: list[list[int]]) -> None:
        agreed: list[bool] = []
        for capture in engine.submit(batch, with_argmax=True).result():
            assert capture.argmax is not None
            assert capture.argmax.dtype == np.int32
            assert capture.argmax.shape == capture.token_ids.shape
            chosen = engine.head_argmax(capture.tensors["final"])
            assert chosen.dtype == np.int32
            agreed += (chosen == capture.argmax).tolist()
        assert np.mean(agreed) >= 0.98

    def test_the_head_refuses_rows_of_another_width(self, engine: Engine) -> None:
        (capture,) = engine.submit([[1, 2, 3]]).result()
        with pytest.raises(EngineError, match=r"final: expected .*, got"):
            engine.head_argmax(capture.tensors["final"][:, 1:])

    @pytest.mark.parametrize("samples", [[], [[]], [[1], []]])
    def test_refuses_what_is_empty(self, engine: Engine, samples: Sequence[Sequence[int]]) -> None:
        with pytest.raises(BatchError, match="expected"):
            engine.submit(samples)

    def test_names_every_id_outside_the_vocabulary(self, engine: Engine) -> None:
        vocab_size = engine.target.vocab_size
        with pytest.raises(BatchError) as caught:
            engine.submit([[1, vocab_size], [1], [-1]])
        assert [problem.where for problem in caught.value.problems] == ["sample 0", "sample 2"]
        assert str(vocab_size) in caught.value.problems[0].message

    def test_hands_out_another_schema_of_the_same_model(self, engine: Engine, batch: list[list[int]]) -> None:
        target = engine.target
        every = Schema.declare(target, all_names(target.n_layers), engine.schema.tensors[0].dtype)
        audit = engine.handing_out(every)
        assert audit.schema == every
        assert audit.info == engine.info
        for one, other in zip(audit.submit(batch).result(), engine.submit(batch).result(), strict=True):
            assert tuple(one.tensors) == every.names
            for name in engine.schema.names:
                assert one.tensors[name].tobytes() == other.tensors[name].tobytes()

    def test_refuses_a_schema_of_another_target_or_dtype(self, engine: Engine) -> None:
        other_dtype: DType = "float16" if engine.schema.tensors[0].dtype != "float16" else "float32"
        other_target = Target.model_validate(engine.target.model_dump() | {"tokenizer_sha256": "f" * 64})
        schema = Schema.declare(other_target, ["embed", "final"], other_dtype)
        with pytest.raises(OpeningError) as caught:
            engine.handing_out(schema)
        assert [problem.where for problem in caught.value.problems] == [
            "embed",
            "final",
            "target.tokenizer_sha256",
        ]

    def test_closing_twice_does_nothing_and_nothing_runs_after(self, engine: Engine) -> None:
        other = engine.handing_out(engine.schema)
        engine.close()
        engine.close()
        with pytest.raises(EngineError, match="closed"):
            other.submit([[1]])


def _bytes(capture: Capture) -> dict[str, bytes]:
    return {name: rows.tobytes() for name, rows in capture.tensors.items()}
