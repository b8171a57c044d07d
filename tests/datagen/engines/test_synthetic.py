"""The synthetic engine's own promises: made again from the ids, plausible norms, a seed is a target."""

from collections.abc import Sequence

import numpy as np
import pytest

from datagen.engines.base import Engine
from datagen.engines.errors import OpeningError
from datagen.engines.opening import open_engine, read_target
from datagen.engines.settings import EngineSettings, SyntheticSettings
from schemas.boundary import all_names
from schemas.schema import DType, Schema

SHAPE = SyntheticSettings(n_layers=6, hidden_size=64, vocab_size=1000)


def opened(shape: SyntheticSettings = SHAPE, dtype: DType = "bfloat16", names: Sequence[str] = ()) -> Engine:
    settings = EngineSettings(name="synthetic", dtype=dtype, synthetic=shape)
    target = read_target(settings)
    return open_engine(settings, Schema.declare(target, names or all_names(shape.n_layers), dtype))


def test_another_process_makes_the_same_bytes() -> None:
    ids = [5, 6, 7, 999]
    (one,), (other,) = opened().submit([ids]).result(), opened().submit([ids]).result()
    for name in one.tensors:
        assert one.tensors[name].tobytes() == other.tensors[name].tobytes()
    # Pinned: data that was made by another version must not look like this one's.
    first_bits = one.tensors["final"].view(np.uint16)[0, :4].tolist()
    assert first_bits == PINNED_FINAL, first_bits


PINNED_FINAL = [17011, 49540, 16706, 49705]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_norms_grow_with_depth(dtype: DType) -> None:
    (capture,) = opened(dtype=dtype).submit([list(range(200))]).result()
    medians = [float(np.median(capture.norms[name])) for name in all_names(SHAPE.n_layers)[:-1]]
    assert medians == sorted(medians)
    assert medians[-1] > 10 * medians[0] > 0


def test_a_row_depends_on_token_position_and_tensor() -> None:
    (capture,) = opened().submit([[7, 7, 8]]).result()
    rows = [capture.tensors[name][index].tobytes() for name in capture.tensors for index in range(3)]
    assert len(set(rows)) == len(rows)


def test_another_seed_is_another_target() -> None:
    settings = EngineSettings(name="synthetic", synthetic=SHAPE)
    other = EngineSettings(name="synthetic", synthetic=SHAPE.model_copy(update={"seed": 1}))
    assert read_target(settings).weights != read_target(other).weights
    schema = Schema.declare(read_target(settings), ["embed"], "bfloat16")
    with pytest.raises(OpeningError, match=r"target\.weights\.sha256"):
        open_engine(other, schema)


def test_a_capture_shares_no_memory_with_another() -> None:
    engine = opened()
    (one,), (other,) = engine.submit([[1, 2]]).result(), engine.submit([[1, 2]]).result()
    one.tensors["final"][:] = 0
    assert other.tensors["final"].any()


def test_argmax_needs_no_declared_final() -> None:
    ids = [3, 4, 5]
    (alone,) = opened(names=["embed"]).submit([ids], with_argmax=True).result()
    (whole,) = opened().submit([ids], with_argmax=True).result()
    assert alone.argmax is not None
    assert whole.argmax is not None
    assert alone.argmax.tolist() == whole.argmax.tolist()
    assert len(set(alone.argmax.tolist())) == 3


def test_widths_down_to_one() -> None:
    shape = SyntheticSettings(n_layers=1, hidden_size=1, vocab_size=10)
    (capture,) = opened(shape, names=["final"]).submit([[9, 1]], with_argmax=True).result()
    assert capture.tensors["final"].shape == (2, 1)
