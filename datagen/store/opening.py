"""From what a person writes as a root to the door behind it."""

import re
from pathlib import Path

from datagen.store.bucket import BucketDoor
from datagen.store.door import Door
from datagen.store.errors import DoorError
from datagen.store.local import LocalDoor
from schemas.problem import Problem

BUCKET_SCHEMES = ("s3", "gs", "az", "memory")
"""`memory` lives and dies with the process: for trials only."""


def open_door(root: str | Path) -> Door:
    """Open a root: a folder, `file://FOLDER`, `s3://`, `gs://` or `az://`; nothing is made or asked yet.

    Raises `DoorError` for a URL of another kind.

    >>> open_door("data"), open_door("file:///srv/states")
    (LocalDoor('data'), LocalDoor('/srv/states'))
    """
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", str(root), re.DOTALL)
    if match is None:
        return LocalDoor(root)
    scheme, rest = match.group(1).lower(), match.group(2)
    if scheme == "file" and rest.startswith("/"):
        return LocalDoor(rest)
    if scheme in BUCKET_SCHEMES:
        return BucketDoor(str(root))
    message = f"expected a folder, file:///, s3://, gs:// or az://, got {root}"
    raise DoorError("no such kind of root", [Problem(where="root", kind="root", message=message)])
