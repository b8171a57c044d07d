"""The client against a real server: what was written is what is fetched, bit for bit."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from datagen.store.sample_data import SampleData
from schemas.card import Card
from schemas.errors import SchemaError
from schemas.schema import DTYPES, INPUT_IDS, LOSS_MASK, TARGET_ARGMAX
from schemas.wiring import TargetRole, Wiring
from service.client import errors
from service.client.client import Client
from service.client.rows import Rows
from service.client.version import Version
from service.wire.order import epoch_order
from tests.builders import tiny_schema, tiny_target
from tests.datagen.store.real_parts import commit_samples, samples_of
from tests.service.serving import LENGTHS, make_dataset, serving

TARGET = TargetRole(tensor="final", applies_norm=True)
WIRING = Wiring(consumer="mine", kind="trainer", n_layers=4, fc=("layer2",), target=TARGET)
Written = dict[str, list[SampleData]]
MODES = pytest.mark.parametrize("direct", [False, True], ids=["http", "direct"])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def written(root: Path) -> Written:
    """Make the datasets `bfloat16` and so on, each of one dtype and with a third token column, and `demo`."""
    columns = (INPUT_IDS, LOSS_MASK, TARGET_ARGMAX)
    schemas = {dtype: tiny_schema(dtype=dtype, token_columns=columns) for dtype in DTYPES}
    made: Written = {dtype: make_dataset(root, dtype, schema=schema) for dtype, schema in schemas.items()}
    return {**made, "demo": make_dataset(root, "demo")}


@pytest.fixture(scope="module")
def url(root: Path, written: Written) -> Iterator[str]:
    with serving(root) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url, direct=False) as client:
        yield client


def assert_is(rows: Rows, sample: SampleData, window: slice = slice(None)) -> None:
    arrays = {**rows.tensors, **rows.tokens}
    for name, values in arrays.items():
        expected = sample.tensors.get(name, sample.tokens.get(name))
        assert expected is not None
        assert values.tobytes() == expected[window].tobytes(), name
        assert values.shape == expected[window].shape
        assert values.dtype.itemsize == expected.dtype.itemsize
        assert not values.size or values.base is not None
    assert rows.sample_ids == (sample.sample_id,)


def test_a_version_knows_its_datasets_id(client: Client, root: Path, written: Written) -> None:
    record = Dataset.open(open_door(str(root)), "demo").snapshot().version
    assert client.version("demo").dataset_id == record.dataset_id


@MODES
@pytest.mark.parametrize("dtype", DTYPES)
def test_whole_samples_are_bit_for_bit(url: str, written: Written, dtype: str, direct: bool) -> None:
    with Client(url, direct=direct) as client:
        version = client.version(dtype)
        for sample in written[dtype]:
            rows = version.tensors(sample.sample_id)
            assert tuple(rows.tensors) == ("embed", "layer2", "final")
            assert tuple(rows.tokens) == ("input_ids", "loss_mask", "target_argmax")
            assert (rows.dataset, rows.version, rows.n_tokens) == (dtype, 1, sample.n_tokens)
            assert_is(rows, sample)
        assert client.mode == ("direct" if direct else "http")


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_window_of_every_sample_is_bit_for_bit(url: str, written: Written, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    sample = data.draw(st.sampled_from(written[dtype]))
    first = data.draw(st.integers(0, sample.n_tokens - 1))
    end = data.draw(st.integers(first + 1, sample.n_tokens))
    window = data.draw(st.sampled_from([slice(first, end), slice(first, None), slice(None, end)]))
    every = ("embed", "layer2", "final", "input_ids", "loss_mask", "target_argmax")
    names = data.draw(st.lists(st.sampled_from(every), min_size=1, unique=True))
    with Client(url, direct=data.draw(st.booleans())) as client:
        rows = client.version(dtype).tensors(sample.sample_id, names, window)
    assert [*rows.tensors, *rows.tokens] == sorted(
        names, key=lambda name: (every.index(name) > 2, names.index(name))
    )
    assert_is(rows, sample, window)


@MODES
def test_batches_are_the_samples_end_to_end(url: str, written: Written, direct: bool) -> None:
    samples = [written["bfloat16"][at] for at in (3, 0, 5, 0, 1)]
    with Client(url, direct=direct) as client:
        rows = client.version("bfloat16").batch([sample.sample_id for sample in samples])
    assert rows.offsets.tolist() == np.cumsum([0, *(sample.n_tokens for sample in samples)]).tolist()
    for each, sample in zip(rows, samples, strict=True):
        assert_is(each, sample)
    with pytest.raises(IndexError):
        rows.sample(5)


@MODES
def test_bytes_are_put_where_the_caller_says(url: str, written: Written, direct: bool) -> None:
    sample = written["bfloat16"][4]
    buffer = np.zeros(100_000, np.uint8)
    asked: list[int] = []

    def factory(n_bytes: int) -> NDArray[np.uint8]:
        asked.append(n_bytes)
        return buffer

    with Client(url, direct=direct) as client:
        version = client.version("bfloat16")
        for out in (buffer, factory):
            buffer[:] = 0
            rows = version.tensors(sample.sample_id, ["final", "input_ids"], out=out)
            assert np.shares_memory(rows.tensors["final"], buffer)
            assert np.shares_memory(rows.tokens["input_ids"], buffer)
            assert_is(rows, sample)
            assert buffer.any()
        assert asked == [sample.n_tokens * (16 + 4)]
        for wrong in (
            buffer[:10],
            buffer[::2],
            buffer.view(np.uint16),
            np.frombuffer(bytes(100_000), np.uint8),
        ):
            with pytest.raises(ValueError, match="expected `out`"):
                version.tensors(sample.sample_id, out=wrong)  # type: ignore[arg-type]
        assert_is(version.tensors(sample.sample_id), sample)


def test_one_connection_serves_all_requests_of_a_thread(client: Client, written: Written) -> None:
    version = client.version("bfloat16")
    for sample in written["bfloat16"] * 3:
        version.tensors(sample.sample_id, tokens=slice(0, 1))
        with pytest.raises(errors.InvalidError):
            version.tensors(sample.sample_id, tokens=slice(0, 1000))
    assert client.session.transport.connections.opened == 1


def test_a_wiring_chooses_the_tensors_and_is_sent(client: Client, written: Written) -> None:
    version = client.version("demo", wiring=WIRING)
    assert version.names == ("layer2", "final", "input_ids", "loss_mask")
    rows = version.tensors(next(iter(version.samples())).sample_id)
    assert tuple(rows.tensors) == ("layer2", "final")


def test_a_wiring_that_does_not_fit_is_refused_with_every_problem(client: Client) -> None:
    wrong = WIRING.model_copy(update={"fc": ("layer1", "layer3")})
    with pytest.raises(errors.RefusedError) as caught:
        client.version("demo", wiring=wrong)
    assert {problem.got for problem in caught.value.problems} >= {"layer1", "layer3"} or len(
        caught.value.problems
    ) >= 2
    # The service refuses it too, with the same problems, also when the client does not look first.
    unseen = Version("demo", 1, client.schema("demo"), wrong, session=client.session)
    with pytest.raises(errors.RefusedError) as told:
        unseen.tensors("0" * 64, ["final"])
    assert told.value.problems == caught.value.problems
    assert told.value.status == 409


def test_another_schema_is_refused_by_the_service(client: Client) -> None:
    other = Version("demo", 1, client.schema("float32"), None, session=client.session)
    with pytest.raises(errors.RefusedError, match="schema_fingerprint"):
        other.tensors("0" * 64, ["final"])


def test_a_card_of_another_target_is_refused(client: Client) -> None:
    other = tiny_target().model_copy(update={"model_id": "other", "tokenizer_sha256": "9" * 64})
    with pytest.raises(errors.RefusedError, match="tokenizer"):
        client.version("demo", wiring=Card(target=other, wiring=WIRING))
    assert client.version("demo", wiring=Card(target=tiny_target(), wiring=WIRING)).wiring == WIRING


@MODES
def test_what_there_is_not_is_told_by_name(url: str, written: Written, direct: bool) -> None:
    sample = written["bfloat16"][3]
    with Client(url, direct=direct) as client:
        version = client.version("bfloat16")
        with pytest.raises(SchemaError, match="expected one of embed, layer2, final, input_ids"):
            version.tensors(sample.sample_id, ["layer3"])
        with pytest.raises(SchemaError, match="64 hex digits"):
            version.tensors("../../secret")
        with pytest.raises(SchemaError, match="at least one"):
            version.batch([])
        with pytest.raises(errors.NotFoundError, match="no such sample"):
            version.tensors("0" * 64)
        for window in (slice(0, 66), slice(65, 70), slice(100, 200)):
            with pytest.raises(errors.InvalidError, match="65 tokens") as caught:
                version.tensors(sample.sample_id, tokens=window)
            assert caught.value.status == 416


def test_no_such_dataset_or_version(client: Client) -> None:
    for dataset, version in (("nothing", 1), ("demo", 7), ("demo", "best"), ("../x", 1), ("demo", "../../x")):
        with pytest.raises(errors.AnsweredError) as caught:
            client.version(dataset, version)
        assert caught.value.status in (404, 422)


def test_listings_are_whole(client: Client, written: Written) -> None:
    assert {dataset.name for dataset in client.datasets()} == {*DTYPES, "demo"}
    assert [version.number for version in client.versions("demo")] == [1]
    version = client.version("bfloat16")
    ids = sorted(sample.sample_id for sample in written["bfloat16"])
    for page in (1, 2, 6, 100):
        assert [sample.sample_id for sample in version.samples(page=page)] == ids
    long = [sample.sample_id for sample in version.samples(min_tokens=65)]
    assert long == sorted(sample.sample_id for sample in written["bfloat16"] if sample.n_tokens >= 65)
    found = version.sample(ids[0])
    assert (found.sample_id, found.n_tokens > 0) == (ids[0], True)


def test_the_order_table_is_what_an_order_is_made_of(client: Client, written: Written) -> None:
    table = client.version("bfloat16").order_table()
    samples = sorted(written["bfloat16"], key=lambda sample: sample.sample_id)
    assert [bytes(row).hex() for row in table.sample_ids] == [sample.sample_id for sample in samples]
    assert table.n_tokens.tolist() == [sample.n_tokens for sample in samples]
    assert table.n_trained.tolist() == [int(sample.tokens["loss_mask"].sum()) for sample in samples]
    assert sorted(epoch_order(table.sample_ids, 1, 0).tolist()) == list(range(len(LENGTHS)))
    assert len(client.version("bfloat16").order_table(min_tokens=1000).sample_ids) == 0


def test_latest_is_resolved_once(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    schema = tiny_schema()
    with serving(tmp_path) as url, Client(url) as client:
        version = client.version("demo")
        commit_samples(Dataset.open(open_door(tmp_path), "demo"), schema, samples_of(schema, [7], seed=50))
        assert (version.number, len([*version.samples()])) == (1, len(LENGTHS))
        newer = client.version("demo")
        assert (newer.number, len([*newer.samples()])) == (2, len(LENGTHS) + 1)
        assert [each.number for each in client.versions("demo")] == [2, 1]


def test_a_client_and_its_version_are_pickled(client: Client, written: Written) -> None:
    version = pickle.loads(pickle.dumps(client.version("bfloat16", wiring=None)))
    assert_is(version.tensors(written["bfloat16"][2].sample_id), written["bfloat16"][2])
    version.session.transport.connections.close()
    error = errors.LimitError("slow down", (), status=429, request_id="r", retry_after_seconds=2.0)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.status, copy.retry_after_seconds) == (
        errors.LimitError,
        "slow down",
        429,
        2.0,
    )


def test_checks_are_asked_of_the_service(client: Client) -> None:
    wrong = WIRING.model_copy(update={"fc": ("layer1", "layer3")})
    answer = client.check(dataset="demo", wiring=wrong)
    assert not answer.ok
    with pytest.raises(errors.RefusedError) as caught:
        client.version("demo", wiring=wrong)
    assert set(caught.value.problems) <= set(answer.problems)
    card = Card(target=tiny_target(), wiring=WIRING)
    answer = client.check(dataset="demo", version="1", wiring=WIRING, card=card)
    assert answer.ok, answer.problems
    with pytest.raises(errors.InvalidError, match="nothing to compare"):
        client.check(dataset="demo")
