"""How a person writes a dataset: `ROOT/DATASET[@VERSION]`, the root a folder or a bucket's URL.

A version is written as its number, or as the name that it was given; `latest`, or nothing, is the newest.
"""

import re
from typing import NamedTuple

from schemas.errors import DatasetNameError
from schemas.problem import Problem

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
NAME_RULE = "letters, digits, `.`, `_` and `-`, starting with a letter or digit"


_NUMBER = re.compile(r"[1-9][0-9]{0,7}")
_VERSION_NAME = re.compile(r"[a-z][a-z0-9._-]{0,63}")
VERSION_NAME_RULE = "lower-case letters, digits, `.`, `_` and `-`, starting with a letter"
NEWEST = "latest"


class DatasetReference(NamedTuple):
    """A dataset under a root; a version by its number or its name, and none means the newest.

    >>> str(DatasetReference("data", "demo", 3))
    'data/demo@3'
    """

    root: str
    dataset: str
    version: int | str | None = None

    def __str__(self) -> str:
        root = self.root if self.root.endswith("/") else f"{self.root}/"
        return f"{root}{self.dataset}" + ("" if self.version is None else f"@{self.version}")


def parse_reference(text: str) -> DatasetReference:
    """Read `ROOT/DATASET[@VERSION]`.

    Raises `DatasetNameError` when it is not written so.

    >>> parse_reference("s3://bucket/states/demo@12")
    DatasetReference(root='s3://bucket/states', dataset='demo', version=12)
    >>> parse_reference("demo")
    DatasetReference(root='.', dataset='demo', version=None)
    >>> parse_reference("data/demo@paper-v1").version
    'paper-v1'
    """
    root, slash, last = text.rstrip("/").rpartition("/")
    dataset, at, version = last.rpartition("@") if "@" in last else (last, "", "")
    root = root.rstrip("/")
    problems = name_problems(dataset)
    if at:
        problems += version_problems(version)
    if root.endswith(":"):
        problems.append(
            Problem(
                where="root",
                kind="root",
                message=f"expected a bucket in the URL, got {text!r}",
                repair="write it as s3://bucket/folder/demo",
            )
        )
    if problems:
        raise DatasetNameError(f"expected ROOT/DATASET[@VERSION], got {text!r}", problems)
    return DatasetReference(root or ("/" if slash else "."), dataset, parse_version(version) if at else None)


def parse_version(text: str) -> int | str | None:
    """Return the number or the name that `text` is, `None` for the newest; `version_problems` says no first.

    >>> parse_version("12"), parse_version("paper-v1"), parse_version("latest")
    (12, 'paper-v1', None)
    """
    return int(text) if _NUMBER.fullmatch(text) else None if text == NEWEST else text


def version_problems(text: str) -> list[Problem]:
    """Return what is wrong with a version as a person writes it.

    >>> [problem.message for problem in version_problems("0")]
    ["expected a version's number from 1, or its name, got '0'"]
    """
    if _NUMBER.fullmatch(text) or _VERSION_NAME.fullmatch(text):
        return []
    return [
        Problem(
            where="version",
            kind="version",
            message=f"expected a version's number from 1, or its name, got {text!r}",
            repair="write it as data/demo@3 or data/demo@paper-v1, or leave it out for the newest",
        )
    ]


def version_name_problems(name: str) -> list[Problem]:
    """Return why no version can be given this name.

    >>> [problem.message for problem in version_name_problems("latest")]
    ['expected a name of its own, got `latest`, which is always the newest version']
    """
    if name == NEWEST:
        message = "expected a name of its own, got `latest`, which is always the newest version"
    elif _VERSION_NAME.fullmatch(name):
        return []
    else:
        message = f"expected {VERSION_NAME_RULE}, at most 64 in all, got {name!r}"
    return [Problem(where="name", kind="name", message=message, repair="name it so, as paper-v1")]


def name_problems(dataset: str) -> list[Problem]:
    """Return what is wrong with a dataset's name.

    >>> [problem.message for problem in name_problems("..")]
    ["expected letters, digits, `.`, `_` and `-`, starting with a letter or digit, got '..'"]
    """
    if _NAME.fullmatch(dataset):
        return []
    return [
        Problem(
            where="dataset",
            kind="name",
            message=f"expected {NAME_RULE}, got {dataset!r}",
            repair="name it so, as demo-1",
        )
    ]
