"""A stack is the same bytes as its tensors, however it came; damage is told as everywhere."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from datagen.store.sample_data import SampleData
from schemas.errors import SchemaError
from schemas.schema import DTYPES
from service.client import body, errors
from service.client.client import Client
from service.client.rows import BITS
from tests.builders import tiny_schema
from tests.service.client.misbehaving import misbehaving, sending
from tests.service.client.test_direct import flip
from tests.service.client.told import RIGHT, RIGHT_BYTES, SAMPLE, body_of, client_of, sent, version_of
from tests.service.serving import make_dataset, serving

NAMES = ("final", "embed")
MODES = pytest.mark.parametrize("direct", [False, True], ids=["http", "direct"])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def written(root: Path) -> dict[str, list[SampleData]]:
    return {dtype: make_dataset(root, dtype, schema=tiny_schema(dtype=dtype)) for dtype in DTYPES}


@pytest.fixture(scope="module")
def url(root: Path, written: dict[str, list[SampleData]]) -> Iterator[str]:
    with serving(root) as url:
        yield url


def assert_stacked(states: NDArray[np.generic], sample: SampleData, names: tuple[str, ...]) -> None:
    expected = np.stack([sample.tensors[name] for name in names], axis=1)
    assert states.shape == expected.shape
    assert states.flags.c_contiguous
    assert states.tobytes() == expected.tobytes()


@MODES
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("piece_bytes", [body.PIECE_BYTES, 100], ids=["large", "small"])
def test_a_stack_is_its_tensors_bit_for_bit(
    url: str,
    written: dict[str, list[SampleData]],
    dtype: str,
    direct: bool,
    piece_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(body, "PIECE_BYTES", piece_bytes)
    with Client(url, direct=direct) as client:
        version = client.version(dtype)
        for sample in written[dtype]:
            stack = version.stack(sample.sample_id, NAMES, ("loss_mask", "input_ids"))
            assert stack.states.dtype == BITS[dtype]
            assert_stacked(stack.states, sample, NAMES)
            for name in ("loss_mask", "input_ids"):
                np.testing.assert_array_equal(stack.tokens[name], sample.tokens[name])


@MODES
def test_several_samples_are_each_a_stack_of_its_own(
    url: str, written: dict[str, list[SampleData]], direct: bool
) -> None:
    samples = written["bfloat16"][::-1]
    with Client(url, direct=direct) as client:
        version = client.version("bfloat16")
        stacks = version.stacks([each.sample_id for each in samples], NAMES, ("loss_mask", "input_ids"))
    for stack, sample in zip(stacks, samples, strict=True):
        assert_stacked(stack.states, sample, NAMES)
        for name in ("loss_mask", "input_ids"):
            np.testing.assert_array_equal(stack.tokens[name], sample.tokens[name])


def test_states_are_written_where_the_caller_wants_them(
    url: str, written: dict[str, list[SampleData]]
) -> None:
    memory = np.zeros((200, 2, 8), np.uint16)
    sample = written["bfloat16"][-1]
    with Client(url) as client:
        stack = client.version("bfloat16").stack(sample.sample_id, NAMES, (), out=lambda *_: memory)
    assert stack.states is memory
    assert_stacked(memory, sample, NAMES)


@pytest.mark.parametrize(("names", "told"), [(("final", "final"), "different"), ((), "none")])
def test_what_does_not_stack_is_refused(
    url: str, written: dict[str, list[SampleData]], names: tuple[str, ...], told: str
) -> None:
    with Client(url) as client, pytest.raises(SchemaError, match=told):
        client.version("bfloat16").stack(written["bfloat16"][0].sample_id, names)


def test_an_unknown_tensor_is_refused(url: str, written: dict[str, list[SampleData]]) -> None:
    with Client(url) as client, pytest.raises(SchemaError, match="layer3"):
        client.version("bfloat16").stack(written["bfloat16"][0].sample_id, ("final", "layer3"))


def test_a_flipped_bit_names_part_tensor_and_block(tmp_path: Path) -> None:
    sample, *_ = make_dataset(tmp_path, lengths=(200,))
    (path,) = (each for each in tmp_path.glob("demo/parts/*/data.zarr/final/c/**/*") if each.is_file())
    flip(path, 150 * 16)
    with serving(tmp_path) as url, Client(url, direct=True) as client:
        version = client.version("demo")
        version.stack(sample.sample_id, ("embed", "layer2"))
        with pytest.raises(errors.DamagedError, match="final: block 2: expected crc32c"):
            version.stack(sample.sample_id, NAMES)


def test_bytes_that_changed_on_the_way_are_asked_for_once_more() -> None:
    damaged = bytearray(body_of())
    damaged[-1] ^= 1
    with misbehaving([sent(bytes(damaged)), RIGHT]) as server, client_of(server) as client:
        stack = version_of(client).stack(SAMPLE.sample_id, ("layer2",))
        assert_stacked(stack.states, SAMPLE, ("layer2",))
    with misbehaving([sent(bytes(damaged))]) as server, client_of(server) as client:
        with pytest.raises(errors.ChecksumError, match="layer2: expected crc32c"):
            version_of(client).stack(SAMPLE.sample_id, ("layer2",))
        assert len(server.heard) == 2


def test_an_answer_that_is_cut_is_asked_for_again() -> None:
    cut = sending(RIGHT_BYTES[:-9])
    with misbehaving([cut, RIGHT]) as server, client_of(server) as client:
        stack = version_of(client).stack(SAMPLE.sample_id, ("layer2",))
        assert_stacked(stack.states, SAMPLE, ("layer2",))
        assert len(server.heard) == 2
