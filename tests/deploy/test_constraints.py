"""The pinned CPU set is one that `pyproject.toml` allows, and pins everything that it asks for."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def pins() -> dict[str, str]:
    lines = (ROOT / "deploy" / "constraints-cpu.txt").read_text(encoding="utf-8").splitlines()
    pinned = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pinned}


def asked() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project.get("optional-dependencies", {})
    return [Requirement(text) for text in (*project["dependencies"], *extras.get("dev", ()))]


def test_every_pin_is_allowed_and_nothing_lacks_one() -> None:
    pinned = pins()
    wrong = [
        f"{need}: pinned {pinned.get(canonicalize_name(need.name), 'nowhere')}"
        for need in asked()
        if canonicalize_name(need.name) != "strata-hidden-states"
        and not need.specifier.contains(pinned.get(canonicalize_name(need.name), "0"), prereleases=True)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_pin_names_a_place() -> None:
    text = (ROOT / "deploy" / "constraints-cpu.txt").read_text(encoding="utf-8")
    assert not re.search(r"@|://|\+", text)
