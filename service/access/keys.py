"""The key file: who may ask, as hashes. A secret is shown once, when its key is made, and is kept nowhere.

A key is written `strata_<id>_<secret>`, the secret being 32 random bytes, so that one plain sha256 of it is
safe to keep. The file is replaced whole, under a lock, and is only its owner's to read (mode 0600).
"""

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, AwareDatetime, Field

from schemas.errors import RecordError
from schemas.problem import Problem
from schemas.record import Record
from schemas.reference import name_problems
from service.access.caller import EVERY_DATASET, Scope
from service.errors import KeyFileError

_ID_BYTES = 8
_SECRET_BYTES = 32
_WRITTEN = re.compile(r"strata_([0-9a-f]{16})_([0-9a-f]{64})")
_NOBODYS = "0" * 64
"""What the secret of an unknown id is compared with, so that its refusal takes as long as any."""


def _granted(name: str) -> str:
    """Return the name of a dataset, or `*`; it need not be there yet."""
    problems = [] if name == EVERY_DATASET else name_problems(name)
    if problems:
        raise ValueError(problems[0].message)
    return name


class Key(Record):
    """One key: what it may, from when and until when."""

    id: str = Field(pattern=r"^[0-9a-f]{16}$")
    name: str = Field(min_length=1, max_length=100)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Of the secret's text."""
    scope: Scope
    datasets: tuple[Annotated[str, AfterValidator(_granted)], ...]
    created_at: AwareDatetime
    expires_at: AwareDatetime | None
    revoked_at: AwareDatetime | None

    def state(self, now: datetime) -> Literal["valid", "expired", "revoked"]:
        """Say whether the key opens anything at `now`; a revoked key stays revoked past its expiry."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "valid"


class Keys(Record):
    """What is in a key file."""

    format: Literal["strata.keys.v1"] = "strata.keys.v1"
    keys: tuple[Key, ...]

    def with_secret(self, written: str) -> Key | None:
        """Return the key that is written so, valid or not, or None where there is none.

        It takes as long for an id that is unknown, and for a wrong secret however much of it is right.
        """
        match = _WRITTEN.fullmatch(written)
        if match is None:
            return None
        found = {key.id: key for key in self.keys}.get(match[1])
        kept = _NOBODYS if found is None else found.sha256
        same = hmac.compare_digest(_hashed(match[2]), kept)
        return found if same else None

    def by_id(self, beginning: str) -> Key:
        """Return the key whose id begins so; raises `KeyFileError` unless it is exactly one."""
        found = [key for key in self.keys if beginning and key.id.startswith(beginning)]
        if len(found) != 1:
            got = ", ".join(key.id for key in found) or "none"
            message = f"expected the beginning of one key's id, got {got}"
            repair = "`strata keys list` names them"
            problem = Problem(where=repr(beginning), kind="key", message=message, repair=repair)
            raise KeyFileError("no such key", [problem])
        return found[0]


class NewKey(NamedTuple):
    """A key that was just made, and how it is written: the only place that its secret is ever in."""

    key: Key
    written: str


class KeyFile:
    """The keys in one file, re-read whenever the file is another one: a revoked key is refused at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, ...] | None = None
        self._keys = Keys(keys=())

    def read(self) -> Keys:
        """Return the keys as they are now.

        Raises `KeyFileError` with every problem when the file is not there, or is not a key file.
        """
        try:
            status = os.stat(self.path)
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            if seen != self._seen:
                self._keys = _parsed(self.path.read_bytes(), self.path, status.st_mode)
                self._seen = seen
        except OSError as error:
            self._seen = None
            repair = f"make a key with `strata keys create NAME --keys {self.path}`"
            problem = Problem(
                where=str(self.path),
                kind="unreadable",
                message=f"expected a key file, got {error.strerror}",
                repair=repair if isinstance(error, FileNotFoundError) else None,
            )
            raise KeyFileError("cannot read the keys", [problem]) from error
        return self._keys

    def create(
        self,
        name: str,
        scope: Scope,
        datasets: Sequence[str] = (EVERY_DATASET,),
        lives: timedelta | None = None,
    ) -> NewKey:
        """Add a key that expires after `lives` (None: never); the file is made if there is none.

        Raises `KeyFileError` when the key or the file is off.
        """
        secret = secrets.token_hex(_SECRET_BYTES)
        now = _now()
        fields = {
            "id": secrets.token_hex(_ID_BYTES),
            "name": name,
            "sha256": _hashed(secret),
            "scope": scope,
            "datasets": list(datasets),
            "created_at": now.isoformat(),
            "expires_at": None if lives is None else (now + lives).isoformat(),
            "revoked_at": None,
        }
        try:
            key = Key.from_json(json.dumps(fields).encode(), f"the key {name!r}")
        except RecordError as error:
            raise KeyFileError("cannot make the key", error.problems) from error
        with self._changing(may_be_missing=True) as keys:
            self._write(Keys(keys=(*keys.keys, key)))
        return NewKey(key, f"strata_{key.id}_{secret}")

    def revoke(self, beginning: str) -> Key:
        """Revoke the key whose id begins so, and return it; one that is revoked already stays as it was.

        Raises `KeyFileError` unless it is exactly one key.
        """
        with self._changing(may_be_missing=False) as keys:
            key = keys.by_id(beginning)
            if key.revoked_at is not None:
                return key
            revoked = key.model_copy(update={"revoked_at": _now()})
            self._write(Keys(keys=tuple(revoked if other.id == key.id else other for other in keys.keys)))
        return revoked

    @contextmanager
    def _changing(self, may_be_missing: bool) -> Iterator[Keys]:
        """Hold the lock of the file (beside it, since the file itself is replaced) and give its keys."""
        lock = self.path.with_name(self.path.name + ".lock")
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _not_written(lock, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield Keys(keys=()) if may_be_missing and not self.path.exists() else self.read()
        finally:
            os.close(descriptor)

    def _write(self, keys: Keys) -> None:
        aside = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")
        text = json.dumps(keys.model_dump(mode="json"), indent=2) + "\n"
        try:
            _write_synced(aside, text.encode())
            os.replace(aside, self.path)
            _sync_folder(self.path.parent)
        except OSError as error:
            raise _not_written(self.path, error) from error
        finally:
            with suppress(FileNotFoundError):
                os.unlink(aside)


def _parsed(data: bytes, path: Path, mode: int) -> Keys:
    problems = []
    if mode & 0o022:
        message = f"expected a file that only its owner writes, got mode {mode & 0o777:04o}"
        problems.append(Problem(where=str(path), kind="mode", message=message, repair=f"chmod 600 {path}"))
    keys = Keys(keys=())
    try:
        keys = Keys.from_json(data, str(path))
    except RecordError as error:
        problems += error.problems
    times = Counter(key.id for key in keys.keys)
    problems += [
        Problem(where=f"key {key}", kind="duplicate", message=f"expected one key of this id, got {n}")
        for key, n in times.items()
        if n > 1
    ]
    if problems:
        raise KeyFileError(f"{path} is not a sound key file", problems)
    return keys


def _write_synced(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _not_written(path: Path, error: OSError) -> KeyFileError:
    message = f"expected a place that can be written, got {error.strerror}"
    return KeyFileError(
        "cannot write the keys", [Problem(where=str(path), kind="unwritable", message=message)]
    )


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode("ascii")).hexdigest()


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
