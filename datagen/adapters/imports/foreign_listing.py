"""Which files of some folders are a format's samples, under which names and numbers, and what is missing.

A name that does not fit the format is no sample: vocabulary maps and token counts lie beside samples in every
library's folders.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from datagen.adapters.foreign_files import files_of, holds_states
from datagen.adapters.imports.format import Listed
from schemas.problem import Problem

_SHOWN = 6


@dataclass(frozen=True)
class FileNames:
    """What a format calls its samples; `pattern` fits the whole name, and its group 1 is the number."""

    title: str
    pattern: re.Pattern[str]

    def number(self, file: Path) -> int | None:
        """Return the number in a name, `None` where it has none."""
        match = self.pattern.fullmatch(file.name)
        return int(match.group(1)) if match and match.groups() else None


def listed_files(paths: Sequence[Path], names: FileNames) -> tuple[list[Listed], list[Problem]]:
    """Return the samples among files and folders, folders at any depth, `2` before `10`.

    A file that was named itself is taken whatever it is called. Files in folders that are called otherwise
    are told in a note.
    """
    inside, problems = files_of([path for path in paths if path.is_dir()])
    fit = [file for file in inside if names.pattern.fullmatch(file.name) and holds_states(file)]
    taken = set(fit)
    if others := [file for file in inside if file not in taken and holds_states(file)]:
        message = f"expected {names.title}, got {_some([file.name for file in others])}: left out"
        problems.append(Problem(where="files", kind="names", message=message, severity="note"))
    problems += [
        Problem(where=str(path), kind="file", message="expected a file or a folder, got nothing of this name")
        for path in paths
        if not path.exists()
    ]
    files = list(dict.fromkeys([*fit, *(path for path in paths if path.is_file())]))
    if not files and not any(problem.severity == "error" for problem in problems):
        message = f"expected {names.title}, got none"
        where = ", ".join(str(path) for path in paths)
        problems.append(Problem(where=where, kind="file", message=message))
    called = _called(files, [path for path in paths if path.is_dir()])
    return [Listed(called[file], file, names.number(file)) for file in files], problems


def _called(files: Sequence[Path], folders: Sequence[Path]) -> dict[Path, str]:
    """Return a name a file: its path in the folder that was given, among several with that one's own."""
    found: dict[Path, str] = {}
    for file in files:
        folder = next((folder for folder in folders if file.is_relative_to(folder)), None)
        if folder is None:
            found[file] = file.name
        else:
            inside = file.relative_to(folder)
            found[file] = str(folder.name / inside) if len(folders) > 1 else str(inside)
    counts = Counter(found.values())
    return {file: name if counts[name] == 1 else str(file) for file, name in found.items()}


def gap_problems(
    samples: Sequence[Listed], group: Callable[[Listed], str] = lambda _listed: ""
) -> Iterator[Problem]:
    """Yield a note of the numbers that are missing between the first and the last of each group."""
    groups: dict[str, list[int]] = {}
    for listed in samples:
        if listed.number is not None:
            groups.setdefault(group(listed), []).append(listed.number)
    for name, numbers in groups.items():
        there = set(numbers)
        first, last = min(min(there), 1 if 0 not in there else 0), max(there)
        missing = last - first + 1 - len(there)
        if missing:
            gone = [number for number in range(first, last + 1) if number not in there]
            message = f"expected {first} to {last}, got none of number {some_of(gone)}"
            repair = "they were not made, or not copied: the library that wrote them told of it in its log"
            yield Problem(where=name or "files", kind="gap", message=message, repair=repair, severity="note")


def some_of(numbers: Sequence[int]) -> str:
    """Return ascending numbers as ranges, the first few of many.

    >>> some_of([3, 4, 5, 9])
    '3 to 5, 9'
    """
    return _some(ranges(numbers))


def ranges(numbers: Sequence[int]) -> list[str]:
    """Return ascending numbers as ranges.

    >>> ranges([3, 4, 5, 9])
    ['3 to 5', '9']
    """
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1] = [found[-1][0], number]
        else:
            found.append([number, number])
    return [str(first) if first == last else f"{first} to {last}" for first, last in found]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
