"""Every error of the store.

StrataError
 +-- StoreError
      +-- NotFoundError             no such dataset, version, part, sample or key
      |    +-- GoneError            it was there, and gc removed it: the version's record stays
      +-- AlreadyExistsError        a create-exclusive key is there already (this says not who wrote it)
      +-- CorruptError              bytes are missing, short or changed: names the file, never zeros
      +-- RefusedError              what was handed in departs from the schema or the rules of a part
      +-- ConflictError             a commit cannot be: condemned parts, another schema, too many rivals
      +-- DoorError                 the place cannot be read or written: rights, space, network
"""

from schemas.errors import StrataError


class StoreError(StrataError):
    """The root of the store's errors."""


class NotFoundError(StoreError):
    """No such dataset, version, part, sample or key."""


class GoneError(NotFoundError):
    """Bytes that a version names were condemned and swept by gc; the version's record and index stay."""


class AlreadyExistsError(StoreError):
    """A create-exclusive key is there already; who wrote it is another question."""


class CorruptError(StoreError):
    """Bytes are missing, short or changed."""

    exit_code = 1


class RefusedError(StoreError):
    """What was handed in departs from the schema or from the rules of a part; nothing was committed."""

    exit_code = 1


class ConflictError(StoreError):
    """A commit cannot be made."""


class DoorError(StoreError):
    """The place cannot be read or written."""
