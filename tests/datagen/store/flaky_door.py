"""A door that fails as networks do: before storing, after storing, or by denying one's own write."""

import random

from datagen.store.errors import AlreadyExistsError, DoorError
from datagen.store.local import LocalDoor


class FlakyDoor(LocalDoor):
    """A local door whose `create` of a key that holds `where` goes wrong with a chance of `rate`."""

    def __init__(self, root: str, where: str, rate: float, seed: int) -> None:
        super().__init__(root)
        self.n_failures = 0
        self._where = where
        self._rate = rate
        self._random = random.Random(seed)

    def create(self, key: str, data: bytes) -> None:
        if self._where not in key or self._random.random() >= self._rate:
            super().create(key, data)
            return
        self.n_failures += 1
        way = self._random.choice(["before", "after", "denied"])
        if way == "before":
            raise DoorError(f"cannot write {key}: the connection was refused")
        super().create(key, data)
        if way == "after":
            raise DoorError(f"cannot write {key}: the connection was lost")
        raise AlreadyExistsError(f"{key} exists")
