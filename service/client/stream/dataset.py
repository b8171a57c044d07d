"""The stream: a torch `IterableDataset` over one version, whose whole state is one global position.

A `DataLoader` takes it as it is, with `batch_size=None`: each item is a batch already. Inside of workers,
worker w of n gives every n-th batch of the rank, which the loader's turns put in order again. Each batch
carries the state after it, so a loader's workers need not be asked: keep `batch.state` with a checkpoint,
and give it to `load_state_dict` of a new stream, with as many ranks and workers as there are then.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Unpack

import torch
from torch.utils.data import IterableDataset, get_worker_info

from schemas.problem import Problem
from service.client.ahead import ahead
from service.client.asked import Asked, Settled, settle
from service.client.errors import StreamError
from service.client.options import Options, budget_of, check, selection_of, share_of
from service.client.plan import Pack, Plan
from service.client.resume import identity_of, read_state, read_turn, state_of
from service.client.source import Source
from service.client.stream.batch import Batch, ConsumerBatch, Place, named
from service.client.stream.fetched import fetch
from service.client.stream.forms import Form, form_of
from service.client.stream.memory import KEPT, Memory
from service.client.turns import ALONE, Position, Step, Worker, steps

logger = logging.getLogger(__name__)


def open_stream(source: Source, wiring: Asked, **options: Unpack[Options]) -> "Stream":
    """Return the stream of a version's samples as a wiring's trainer takes them.

    Raises `RefusedError` when the dataset does not have what the wiring takes, `StreamError` when the options
    do not go together or not with the samples: each with all problems, before anything is fetched.
    """
    check(options)
    return Stream(source, settle(wiring, source.schema, lambda: source.final_norm), options)


class Stream(IterableDataset[Any]):
    """The batches of one rank, epoch after epoch. Make one with `open_stream` or `Client.stream`.

    Iterating goes on where the stream stands: `state_dict()` counts what was handed out, not what was
    fetched ahead, and breaking out of a loop loses nothing. One loop at a time.
    """

    def __init__(self, source: Source, settled: Settled, options: Options) -> None:
        super().__init__()
        self.wiring = settled.wiring
        """The whole wiring, nothing left to defaults."""
        self._source = source
        self._options = options
        self._form = _form(settled, options)
        _check_pinned(options)
        selection = selection_of(options)
        table = source.order_table(
            split=selection.split, min_tokens=selection.min_tokens, min_trained=selection.min_trained
        )
        self._plan = Plan(table, options["seed"], budget_of(options))
        self._identity = identity_of(
            source.dataset, source.number, source.schema.fingerprint, selection, self._plan, self.wiring
        )
        self._at = Position()
        self._turn: int | None = None
        """In a worker that gave batches already: how many of the others' come before its next."""
        self._begun_in_worker = False
        self.notes = (*settled.notes, *_notes(self._plan))
        """What a person should know: what was assumed, and samples that are cut or left out."""
        for note in self.notes:
            logger.warning("%s", note)

    def __iter__(self) -> Iterator[Any]:
        """Yield batches from where the stream stands: `Batch`, or `ConsumerBatch` in a consumer's format.

        Raises what fetching raises, where the batch would stand; iterating again tries the same one.
        """
        worker = self._worker()
        memory = self._memory(in_worker=worker is not ALONE)
        turns = steps(
            self._plan.n_packs, self._at, share_of(self._options), worker, self._options.get("epochs")
        )

        def made(step: tuple[Step, Pack]) -> Batch | ConsumerBatch:
            batch = self._made(*step, memory)
            # What was joined or is small lies elsewhere still; what is pinned already stays where it is.
            return batch.pin_memory() if memory.pinned else batch

        # Packs are looked up here, by one thread: an epoch's order is made once.
        jobs = ((step, self._plan.pack(step.epoch, step.pack)) for step in turns)
        for (step, _), batch in ahead(jobs, made, self._options.get("prefetch", 2)):
            self._at = step.after
            if worker is not ALONE:
                self._turn = worker.of - 1
            yield batch
            del batch

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last batch that was handed out, as JSON values.

        In a DataLoader worker it is that worker's own: `StatefulDataLoader` collects them, and gives each
        back to the same worker of as many, in the same rank of as many.
        """
        return state_of(self._identity, self._at) | self._as_worker()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state: of `state_dict`, or of any rank's batch.

        Raises `StateError` with every difference when it is the state of other samples, another order or
        another wiring, or that of another worker.
        """
        at, turn = read_state(state, self._identity), None
        if "worker" in state:
            turn = read_turn(state, self._as_worker())
        self._at, self._turn = at, turn

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch; raises `StreamError` for what is none."""
        if type(epoch) is not int or epoch < 0:
            message = f"expected a whole number from 0 on, got {epoch!r}"
            raise StreamError("no such epoch", [Problem(where="epoch", kind="range", message=message)])
        self._at = Position(epoch, 0)

    def n_packs(self, epoch: int) -> int:
        """Return how many batches an epoch has, of all ranks together."""
        return self._plan.n_packs(epoch)

    @property
    def n_samples(self) -> int:
        """Samples of each epoch."""
        return len(self._plan.lengths)

    def _made(self, step: Step, pack: Pack, memory: Memory) -> Batch | ConsumerBatch:
        fetched = fetch(self._source, self.wiring, pack, memory)
        place: Place = {
            "epoch": step.epoch,
            "position": step.pack,
            "is_padding": step.is_padding,
            "state": state_of(self._identity, step.after),
        }
        form = self._form
        if form is None:
            return named(fetched, self.wiring, self._options.get("layout", "packed"), memory, place)
        if self._options.get("format") == "consumer":
            length = self._plan.budget.tokens or 0
            inputs: Any = form.collate(form.keys, fetched, self.wiring, length, memory)
        else:
            inputs = form.samples(form.keys, fetched, self.wiring)
        return ConsumerBatch(**place, inputs=inputs, sample_ids=fetched.sample_ids)

    def _worker(self) -> Worker:
        info = get_worker_info()
        if info is None:
            return ALONE
        if self._begun_in_worker:
            message = "expected one iteration of each worker, got another: it knows of its own batches only"
            repair = (
                "leave persistent_workers out; a new iteration of the loader starts from the stream's state"
            )
            raise StreamError(
                "a worker cannot begin again",
                [Problem(where="persistent_workers", kind="worker", message=message, repair=repair)],
            )
        self._begun_in_worker = True
        return Worker(info.id if self._turn is None else self._turn, info.num_workers)

    def _as_worker(self) -> dict[str, Any]:
        """Return what a worker's state says beside the position; nothing in a process that is no worker."""
        info = get_worker_info()
        if info is None:
            return {}
        share = share_of(self._options)
        return {
            "worker": [info.id, info.num_workers],
            "rank": [share.rank, share.world_size, share.tail],
            "turn": info.id if self._turn is None else self._turn,
        }

    def _memory(self, *, in_worker: bool) -> Memory:
        asked = self._options.get("pin_memory")
        # A worker is forked: CUDA cannot be used in it, and its batches travel through shared memory.
        pinned = not in_worker and (torch.cuda.is_available() if asked is None else asked)
        return Memory(pinned=pinned, kept=max(KEPT, self._options.get("prefetch", 2) + 2))


def _form(settled: Settled, options: Options) -> Form | None:
    if options.get("format", "named") == "named":
        return None
    return form_of(settled.wiring, budget_of(options), options.get("layout"))


def _check_pinned(options: Options) -> None:
    if options.get("pin_memory") and not torch.cuda.is_available():
        message = "expected CUDA for pinned memory, got a machine or a build of torch without it"
        repair = "leave pin_memory out: batches are pinned where they can be"
        raise StreamError(
            "no pinned memory", [Problem(where="pin_memory", kind="cuda", message=message, repair=repair)]
        )


def _notes(plan: Plan) -> list[Problem]:
    if not plan.n_over:
        return []
    what = "cut to their first tokens" if plan.budget.too_long == "cut" else "left out of every epoch"
    message = (
        f"expected samples of at most {plan.budget.tokens} tokens, got {plan.n_over} longer ones: {what}"
    )
    return [Problem(where="too_long", kind="too_long", severity="note", message=message)]
