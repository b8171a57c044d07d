"""One door per library, and the shape that every module keeps.

The table is the documentation: who wants a library asks the module that has the door to it, and a new
library, or a new door, is a line here.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import pytest

from tests.architecture.house import ROOMS, ROOT, Module, imported, modules, room_of

DOORS: dict[str, tuple[str, ...]] = {
    "anyio": ("service.routes.tensors",),
    "awscrt": ("datagen.store.checksum", "service.client.body", "service.client.direct"),
    "datasets": ("datagen.adapters.exports.speculators_prepared",),
    "fastapi": (
        "service.app",
        "service.access.auth",
        "service.edge.openapi",
        "service.edge.request_size",
        "service.edge.responses",
        "service.routes",
        "service.state",
        "service.asked.versioned",
    ),
    "hs_connectors": ("service.trainers.speculators_backend",),
    "httpx": ("datagen.engines.server_requests",),
    "huggingface_hub": ("datagen.engines.model_files", "datagen.replay.sizes"),
    "jinja2": ("datagen.template.text",),
    "ml_dtypes": (
        "datagen.engines.synthetic",
        "datagen.engines.vllm_running",
        "datagen.store.bfloat16",
        "datagen.store.dtypes",
    ),
    "numpy": ("datagen", "service"),
    "obstore": ("datagen.store.bucket", "datagen.store.bucket_answers", "datagen.store.bucket_reach"),
    "pyarrow": (
        "datagen.adapters.imports.prepared_rows",
        "datagen.prompts",
        "datagen.planning.sizes",
        "datagen.store",
    ),
    "prometheus_client": ("service.metrics",),
    "pydantic": (
        "datagen.config",
        "datagen.engines.sampling",
        "datagen.engines.settings",
        "datagen.placement",
        "datagen.prompts.settings",
        "datagen.readable",
        "datagen.run_settings",
        "schemas",
        "service",
    ),
    "pydantic_settings": ("datagen.config", "datagen.run_settings", "service.settings"),
    "ray": (
        "datagen.driver.cluster",
        "datagen.driver.fleet",
        "datagen.driver.replica",
        "datagen.worker.actor",
    ),
    "rich": ("datagen.commands", "datagen.progress", "datagen.printing"),
    "safetensors": ("datagen.engines.named_weights", "datagen.engines.server_folder"),
    "starlette": (
        "service.app",
        "service.edge.request_log",
        "service.edge.request_size",
        "service.edge.responses",
        "service.answers.streaming",
    ),
    "torch": (
        "datagen.adapters",
        "datagen.engines",
        "datagen.replay",
        "service.client.stream",
        "service.trainers",
    ),
    "transformers": (
        "datagen.engines",
        "datagen.replay.draft",
        "datagen.replay.rotary",
        "datagen.replay.sizes",
        "datagen.template.text",
        "datagen.template.tokenizer",
    ),
    "uvicorn": ("service.commands.serve", "service.edge.connection"),
    "vllm": ("datagen.engines.vllm_connector", "datagen.engines.vllm_running"),
    "zarr": ("datagen.store.bfloat16",),
}
FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "helper", "misc"}
MAX_LINES = 400
MACHINE_PATH = re.compile(r"(?<![\w.)}\]>$~*-])/(?:work|root|home/\w+|Users/\w+|tmp/venv)(?![\w-])[/\w.-]*")


def libraries(module: Module) -> set[str]:
    return {room_of(name) for name in imported(module.tree)} - {*sys.stdlib_module_names, *ROOMS}


def may(name: str, doors: tuple[str, ...]) -> bool:
    return any(name == door or name.startswith(f"{door}.") for door in doors)


def named(found: list[str]) -> str:
    return "".join(f"\n  {line}" for line in found)


def test_each_library_is_imported_through_its_doors_only() -> None:
    wrong = [
        f"{module.name}: expected {library} only in {', '.join(DOORS.get(library, ('no module',)))}"
        for module in modules(*ROOMS)
        for library in sorted(libraries(module))
        if not may(module.name, DOORS.get(library, ()))
    ]
    assert not wrong, named(wrong)


@pytest.mark.parametrize("library", DOORS)
def test_every_door_is_in_use(library: str) -> None:
    users = [module.name for module in modules(*ROOMS) if library in libraries(module)]
    unused = [door for door in DOORS[library] if not any(may(user, (door,)) for user in users)]
    assert not unused, f"{library}: expected a user of each door, got none of {', '.join(unused)}"


def test_no_import_of_our_own_is_hidden_in_a_function() -> None:
    wrong = [
        f"{module.name}.{function.name}: {name}"
        for module in modules(*ROOMS)
        for function in ast.walk(module.tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for name in imported(function)
        if room_of(name) in ROOMS
    ]
    assert not wrong, named(wrong)


def test_a_modules_name_says_its_idea() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(item for group in project["optional-dependencies"].values() for item in group),
    ]
    names = {re.split(r"[\[<>=!~; ]", item, maxsplit=1)[0].replace("-", "_").lower() for item in wanted}
    forbidden = FORBIDDEN_NAMES | names | set(DOORS)
    wrong = [
        f"{module.name}: no module is named after a library or {', '.join(sorted(FORBIDDEN_NAMES))}"
        for module in modules(*ROOMS, "deploy", "tests")
        if module.name.rsplit(".", 1)[-1] in forbidden
    ]
    assert not wrong, named(wrong)


def test_every_module_says_the_one_idea_it_owns_and_stays_small() -> None:
    """An `__init__.py` of the tests may be empty: it says only that its folder is a package."""
    wrong = [
        f"{module.name}: expected a docstring"
        for module in modules(*ROOMS, "deploy", "tests")
        if not ast.get_docstring(module.tree) and (module.tree.body or room_of(module.name) != "tests")
    ]
    wrong += [
        f"{module.name}: expected at most {MAX_LINES} lines, got {module.n_lines}"
        for module in modules(*ROOMS, "deploy", "tests")
        if module.n_lines > MAX_LINES
    ]
    assert not wrong, named(wrong)


def _code_in_init(module: Module) -> Iterator[int]:
    for node in module.tree.body[1:]:
        targets = node.targets if isinstance(node, ast.Assign) else []
        is_all = [target.id for target in targets if isinstance(target, ast.Name)] == ["__all__"]
        if not is_all and not isinstance(node, ast.Import | ast.ImportFrom):
            yield node.lineno


def test_an_init_holds_a_docstring_imports_and_all() -> None:
    wrong = [
        f"{module.name}: line {line}"
        for module in modules(*ROOMS, "deploy", "tests")
        if module.path.name == "__init__.py"
        for line in _code_in_init(module)
    ]
    assert not wrong, named(wrong)


def test_every_folder_of_modules_is_a_package() -> None:
    """Without `tests/__init__.py` pytest would import the folder `tests/schemas` as `schemas`."""
    folders = {module.path.parent for module in modules(*ROOMS, "deploy", "tests")}
    wrong = [
        str(folder.relative_to(ROOT)) for folder in sorted(folders) if not (folder / "__init__.py").exists()
    ]
    assert not wrong, named(wrong)


def _swallows(node: ast.AST) -> bool:
    broad = ("Exception", "BaseException")
    if isinstance(node, ast.ExceptHandler):
        caught = node.type
        empty = all(isinstance(line, ast.Pass | ast.Continue) for line in node.body)
        return caught is None or (isinstance(caught, ast.Name) and caught.id in broad and empty)
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
        return any(isinstance(given, ast.Name) and given.id in broad for given in node.args)
    return False


def test_no_failure_is_swallowed() -> None:
    wrong = [
        f"{module.name}: line {node.lineno}"
        for module in modules(*ROOMS, "deploy", "tests")
        for node in ast.walk(module.tree)
        if _swallows(node) and isinstance(node, ast.ExceptHandler | ast.Call)
    ]
    assert not wrong, named(wrong)


def test_no_tracked_file_names_a_path_of_a_machine() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: nothing is tracked")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True)
    wrong = []
    for name in filter(None, tracked.stdout.split("\0")):
        path = ROOT / name
        data = path.read_bytes() if path.is_file() else b""
        if b"\0" not in data:
            wrong += [f"{name}: {found}" for found in MACHINE_PATH.findall(data.decode("utf-8", "replace"))]
    assert not wrong, named(wrong)


@pytest.mark.parametrize("folder", ["work", "root", "home/me", "Users/me", "tmp/venv"])
def test_a_path_of_a_machine_is_found(folder: str) -> None:
    assert MACHINE_PATH.findall(f"see `/{folder}/models` there") == [f"/{folder}/models"]
    assert MACHINE_PATH.findall(f"data/{folder} <root>/{folder} http://host.example/{folder}") == []


@pytest.mark.parametrize(
    "code",
    [
        "try:\n    x\nexcept:\n    raise",
        "try:\n    x\nexcept Exception:\n    pass",
        "with contextlib.suppress(Exception):\n    x",
    ],
    ids=["bare", "pass", "suppress"],
)
def test_a_swallowed_failure_is_found(code: str) -> None:
    assert any(_swallows(node) for node in ast.walk(ast.parse(code)))
