"""What tells one export from another: facts as canonical JSON, and what of them differs where two do."""

import json
from collections.abc import Iterator

from schemas.problem import Problem

_VERSION = "card.dataset.version"
_OF_A_VERSION = ("rows", "train_rows", "tokens")
"""What follows from the version, and is told by it alone."""


def differences(meant: bytes, found: bytes) -> Iterator[Problem]:
    """Yield every fact in which an export that lies somewhere is another one than is meant.

    >>> [str(problem) for problem in differences(b'{"splits":["train"]}', b'{"splits":[]}')]
    ["splits: expected ['train'], got []"]
    """
    ours, theirs = _flat(json.loads(meant)), _flat(_read(found))
    names = [name for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name)]
    for name in names:
        if name in _OF_A_VERSION and _VERSION in names:
            continue
        repair = None
        if name == _VERSION and theirs.get(name) is not None:
            repair = f"say the version, --dataset .../{theirs.get('card.dataset.name')}@{theirs[name]}"
        message = f"expected {ours.get(name)!r}, got {theirs.get(name)!r}"
        yield Problem(where=name, kind="difference", message=message, repair=repair)


def _read(found: bytes) -> object:
    try:
        return json.loads(found)
    except ValueError:
        return None


def _flat(value: object, where: str = "") -> dict[str, object]:
    """Return the leaves by their dotted names; a list is a leaf."""
    if not isinstance(value, dict):
        return {where: value} if where else {}
    return {
        name: leaf
        for key, inner in value.items()
        for name, leaf in _flat(inner, f"{where}.{key}" if where else str(key)).items()
    }
