"""One dataset as each kind of `Held` holds it, and folders that are prepared from it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from service.trainers.held import Held, open_held
from service.trainers.launching import Asked, judged
from service.trainers.prepared import Prepared
from service.trainers.preparing import prepare
from tests.service.serving import serving

WAYS = ("stored", "direct", "http")


@contextmanager
def held_in(root: Path, name: str) -> Iterator[dict[str, Held]]:
    """Give a dataset as it lies in its root, by a service's files, and over HTTP."""
    with serving(root) as url:
        yield {
            "stored": open_held(f"{root}/{name}"),
            "direct": open_held(f"{url}#{name}"),
            "http": open_held(f"{url}#{name}", direct=False),
        }


def prepared_from(
    held: Held, folder: Path, fc: Sequence[str] | None = None, splits: tuple[str, ...] = ()
) -> Prepared:
    """Prepare a folder in the wiring that is asked for, as a launch does."""
    asked = Asked(held.source, folder, tuple(fc) if fc else None, splits=splits)
    return prepare(folder, held, judged(held, asked)[0])
