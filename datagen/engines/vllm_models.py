"""Whether vLLM's own code of a model hands out its states: read in the package's files, which are not run.

vLLM asks its class for `SupportsEagle3` once the weights are there; a plan asks before.
"""

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path

MODELS = Path("model_executor") / "models"
HANDS_OUT = "SupportsEagle3"


def installed_package() -> Path | None:
    """Return the folder of the installed package, `None` where there is none to read."""
    try:
        spec = importlib.util.find_spec("vllm")
    except ValueError:
        return None
    places = (spec.submodule_search_locations if spec is not None else None) or ()
    return next((Path(place) for place in places), None)


@cache
def hands_out(package: Path, architecture: str) -> bool | None:
    """Return whether the class that vLLM has for an architecture hands out states, `None` where that is not
    to be told: it is in no registry, or its class is made in a way that is not followed."""
    registry = _read(package / MODELS / "registry.py")
    found = re.search(rf'"{re.escape(architecture)}":\s*\(\s*"([\w.]+)",\s*"(\w+)"', registry or "")
    if found is None:
        return None
    module, name = found.groups()
    file = _file(package.parent / module.replace(".", "/") if "." in module else package / MODELS / module)
    return None if file is None else _class_hands_out(package, file, name)


def _class_hands_out(package: Path, file: Path, name: str) -> bool | None:
    tree = ast.parse(_read(file) or "")
    owner = next((one for one in ast.walk(tree) if isinstance(one, ast.ClassDef) and one.name == name), None)
    if owner is None:
        return _imported_hands_out(package, file, tree, name)
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in owner.bases]
    names = [base.id if isinstance(base, ast.Name) else getattr(base, "attr", None) for base in bases]
    if HANDS_OUT in names:
        return True
    told = [False if one is None else _class_hands_out(package, file, one) for one in names if one != name]
    return True if True in told else None if None in told else False


def _imported_hands_out(package: Path, file: Path, tree: ast.Module, name: str) -> bool | None:
    """Return it of a class by the file that it is imported from; what is not of vLLM hands out none."""
    for one in ast.walk(tree):
        if not isinstance(one, ast.ImportFrom):
            continue
        origin = next((each.name for each in one.names if (each.asname or each.name) == name), None)
        if origin is None:
            continue
        module = one.module or ""
        if one.level:
            folder = file.parents[one.level - 1]
            other = _file(folder / module.replace(".", "/"))
        elif module.split(".")[0] == package.name:
            other = _file(package.parent / module.replace(".", "/"))
        else:
            return False
        return None if other is None or other == file else _class_hands_out(package, other, origin)
    return False


def _file(stem: Path) -> Path | None:
    places = (stem.with_name(f"{stem.name}.py"), stem / "__init__.py")
    return next((place for place in places if place.is_file()), None)


def _read(file: Path) -> str | None:
    try:
        return file.read_text("utf-8")
    except OSError:
        return None
