"""Streams from a real server: over HTTP and from the files, in workers, and in ranks that die and go on."""

import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils.data import DataLoader

from schemas.wiring import Wiring as WholeWiring
from service.client import Client
from service.client.errors import NotFoundError, RefusedError
from service.client.stream import Batch
from tests.builders import tiny_schema
from tests.service.client.memory_source import MemorySource
from tests.service.client.stream.asking import FC, WIRING, stream_of
from tests.service.serving import make_dataset, serving

LENGTHS = (5, 3, 64, 2, 65, 1, 7, 130, 4, 128, 63, 6, 2, 13, 10, 40, 41, 42, 43)
OPTIONS: dict[str, Any] = {"tokens_per_batch": 130, "epochs": 1, "seed": 0}
FORK = multiprocessing.get_context("fork")


class Served(NamedTuple):
    """A server's address, and its samples in memory."""

    url: str
    source: MemorySource


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root: Path = tmp_path_factory.mktemp("served")
    schema = tiny_schema((*FC, "final", "final_normed"))
    samples = make_dataset(root, lengths=LENGTHS, schema=schema)
    with serving(root) as url:
        yield Served(url, MemorySource(schema, {sample.sample_id: sample for sample in samples}))


def same(first: Batch, second: Batch) -> bool:
    return (
        first.sample_ids == second.sample_ids
        and first.state == second.state
        and torch.equal(first.input_ids, second.input_ids)
        and torch.equal(first.loss_mask, second.loss_mask)
        and all(
            torch.equal(tensor.view(torch.int16), second.tensors[name].view(torch.int16))
            for name, tensor in first.tensors.items()
        )
    )


@pytest.mark.parametrize("direct", [False, True], ids=["http", "direct"])
@pytest.mark.parametrize(
    "options",
    [{}, {"layout": "padded"}, {"tokens_per_batch": 60, "too_long": "cut"}],
    ids=["packed", "padded", "cut"],
)
def test_what_is_streamed_is_what_was_written(served: Served, direct: bool, options: dict[str, Any]) -> None:
    with Client(served.url, direct=direct) as client:
        got = list(client.stream("demo", wiring=WIRING, **{**OPTIONS, **options}))
    expected = list(stream_of(served.source, **{**OPTIONS, **options}))
    assert len(got) == len(expected)
    assert all(same(first, second) for first, second in zip(got, expected, strict=True))


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(("context", "workers"), [("fork", 2), ("spawn", 1)], ids=["fork", "spawn"])
def test_workers_of_a_loader_ask_the_server_themselves(served: Served, context: str, workers: int) -> None:
    with Client(served.url, direct=False) as client:
        stream = client.stream("demo", 1, wiring=WIRING, **OPTIONS)
        first = next(iter(client.stream("demo", 1, wiring=WIRING, **OPTIONS)))
        loader = DataLoader(stream, batch_size=None, num_workers=workers, multiprocessing_context=context)
        got = list(loader)
    expected = list(stream_of(served.source, **OPTIONS))
    assert same(first, expected[0])
    assert all(same(one, other) for one, other in zip(got, expected, strict=True))


def test_a_wiring_that_does_not_fit_raises_at_construction_with_all_problems(served: Served) -> None:
    wiring = WIRING.__class__("speculators", ("embed", "layer2", "layer3"), "final_normed", "0.9.0")
    with Client(served.url) as client, pytest.raises(RefusedError) as refused:
        client.stream("demo", wiring=wiring, **OPTIONS)
    assert {problem.where for problem in refused.value.problems} >= {"fc[0]", "target"}


def test_a_bare_name_is_refused(served: Served) -> None:
    with Client(served.url) as client, pytest.raises(RefusedError, match="by name, got 'speculators' alone"):
        client.stream("demo", wiring="speculators", **OPTIONS)


def test_the_server_judges_the_wiring_too(served: Served) -> None:
    with Client(served.url) as client:
        version = client.version("demo")
        wrong = WholeWiring(consumer="mine", kind="trainer", n_layers=4, fc=("embed",))
        asked = version.__class__("demo", 1, version.schema, wrong, session=client.session)
        with pytest.raises(RefusedError, match="embed"):
            asked.order_table()


def test_a_version_that_is_not_there_is_not_streamed(served: Served) -> None:
    with Client(served.url) as client, pytest.raises(NotFoundError):
        client.stream("demo", 7, wiring=WIRING, **OPTIONS)


def train(url: str, rank: int, world_size: int, state: dict[str, Any] | None, trainer: Connection) -> None:
    """Be one rank: say each batch, and go on when told."""
    share = {"rank": rank, "world_size": world_size, "tail": "pad"}
    with Client(url, direct=False) as client:
        stream = client.stream("demo", 1, wiring=WIRING, **{**OPTIONS, **share})
        if state is not None:
            stream.load_state_dict(state)
        for batch in stream:
            trainer.send((batch.sample_ids, batch.is_padding, batch.state))
            trainer.recv()
    trainer.send(None)


class Ranks:
    """Ranks as processes, in step; `kill` ends them as a scheduler does."""

    def __init__(self, url: str, world_size: int, state: dict[str, Any] | None) -> None:
        self.pipes, self.processes = [], []
        for rank in range(world_size):
            ours, theirs = FORK.Pipe()
            process = FORK.Process(target=train, args=(url, rank, world_size, state, theirs))
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)

    def step(self) -> list[tuple[tuple[str, ...], bool, dict[str, Any]]] | None:
        """Return what each rank trained on, or `None` at the end, which all ranks must reach together."""
        given = [pipe.recv() for pipe in self.pipes]
        if None in given:
            assert given == [None] * len(given)
            return None
        assert len({str(state) for _, _, state in given}) == 1
        for pipe in self.pipes:
            pipe.send("go on")
        return given

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()


def test_ranks_that_are_killed_go_on_from_a_checkpoint_as_another_number_of_ranks(served: Served) -> None:
    trained: list[str] = []
    state = None
    for world_size, n_steps in ((3, 1), (2, 1), (3, 100)):
        ranks = Ranks(served.url, world_size, state)
        for _ in range(n_steps):
            step = ranks.step()
            if step is None:
                break
            trained += [each for sample_ids, is_padding, _ in step if not is_padding for each in sample_ids]
            state = step[0][2]
        ranks.kill()
    assert sorted(trained) == sorted(served.source.samples)
