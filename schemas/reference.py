"""How a person writes a dataset: `ROOT/DATASET[@VERSION]`, the root a folder or a bucket's URL."""

import re
from typing import NamedTuple

from schemas.errors import DatasetNameError
from schemas.problem import Problem

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
NAME_RULE = "letters, digits, `.`, `_` and `-`, starting with a letter or digit"


class DatasetReference(NamedTuple):
    """A dataset under a root; no version means the latest.

    >>> str(DatasetReference("data", "demo", 3))
    'data/demo@3'
    """

    root: str
    dataset: str
    version: int | None = None

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
    """
    root, slash, last = text.rstrip("/").rpartition("/")
    dataset, at, version = last.rpartition("@") if "@" in last else (last, "", "")
    root = root.rstrip("/")
    problems = name_problems(dataset)
    if at and not re.fullmatch(r"[1-9][0-9]{0,7}", version):
        problems.append(
            Problem(
                where="version",
                kind="version",
                message=f"expected a number from 1, got {version!r}",
                repair="write it as data/demo@3, or leave it out for the newest",
            )
        )
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
    return DatasetReference(root or ("/" if slash else "."), dataset, int(version) if at else None)


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
