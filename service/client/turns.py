"""Turns: the steps of one rank, and of one DataLoader worker of it, from one global position on.

The position is the same on all ranks after the same step, and knows of no world size and no worker: so both
may change wherever a stream is resumed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, get_args

from schemas.problem import Problem
from service.client.errors import StreamError
from service.wire.packs import Tail, n_steps, turn


class Position(NamedTuple):
    """Where all ranks stand: `position` packs of `epoch` have been given."""

    epoch: int = 0
    position: int = 0


class Step(NamedTuple):
    """One rank's pack of a step; `after` is the position when all ranks have taken theirs."""

    epoch: int
    pack: int
    is_padding: bool
    after: Position


@dataclass(frozen=True)
class Share:
    """Which packs are one rank's; `tail` says what becomes of an epoch's last ones that do not go round."""

    rank: int = 0
    world_size: int = 1
    tail: Tail | None = None

    def problems(self) -> list[Problem]:
        """Return what is wrong with a rank's share."""
        found = []
        if self.world_size < 1:
            message = f"expected at least 1, got {self.world_size}"
            found.append(Problem(where="world_size", kind="range", message=message))
        elif not 0 <= self.rank < self.world_size:
            message = f"expected a rank between 0 and {self.world_size - 1}, got {self.rank}"
            found.append(Problem(where="rank", kind="range", message=message))
        if self.tail is None and self.world_size > 1:
            message = f'expected tail="pad" or tail="drop" for {self.world_size} ranks, got neither'
            repair = (
                'say "pad" to give ranks without a pack in the last step an earlier one, flagged '
                '`is_padding`, "drop" to leave the last packs of an epoch out'
            )
            found.append(Problem(where="tail", kind="missing", message=message, repair=repair))
        elif self.tail is not None and self.tail not in get_args(Tail):
            message = f"expected one of {', '.join(get_args(Tail))}, got {self.tail!r}"
            found.append(Problem(where="tail", kind="choice", message=message))
        return found


class Worker(NamedTuple):
    """One of `of` DataLoader workers: it takes every `of`-th step, as the loader's turns go."""

    number: int = 0
    of: int = 1


ALONE = Worker()


def steps(
    n_packs: Callable[[int], int],
    start: Position,
    share: Share,
    worker: Worker = ALONE,
    epochs: int | None = None,
) -> Iterator[Step]:
    """Yield a worker's steps from `start` on, until `epochs` are over (counted from 0), or without end.

    Raises `StreamError` at an epoch that has no step for this world size: it would go on for ever.
    """
    epoch, position = start
    tail = share.tail or "pad"
    number = 0
    while epochs is None or epoch < epochs:
        n = n_packs(epoch)
        if not n_steps(n, 0, share.world_size, tail):
            raise StreamError("an epoch without a step", [_too_few(epoch, n, share)])
        while (given := turn(n, position, share.rank, share.world_size, tail)) is not None:
            position = min(position + share.world_size, n)
            if number % worker.of == worker.number:
                yield Step(epoch, given.pack, given.is_padding, Position(epoch, position))
            number += 1
        epoch, position = epoch + 1, 0


def _too_few(epoch: int, n_packs: int, share: Share) -> Problem:
    return Problem(
        where="tail",
        kind="empty",
        message=f"expected at least {share.world_size} packs in epoch {epoch}, one a rank, got {n_packs}",
        repair='say tail="pad", make batches smaller, or use fewer ranks',
    )
