"""Which models hand states out, read in files laid out as vLLM's are."""

from pathlib import Path

import pytest

from datagen.engines import vllm_inside
from datagen.engines.opening import boundary_problems, read_target
from datagen.engines.settings import EngineSettings
from datagen.engines.vllm_models import hands_out
from schemas.schema import Schema
from tests.datagen.engines.conftest import TinyFolder

FILES = {
    "model_executor/models/registry.py": """
_MODELS = {
    "Plain": ("plain", "PlainModel"),
    "Own": ("own", "OwnModel"),
    "Heir": ("heir", "HeirModel"),
    "Far": ("vllm.models.far", "FarModel"),
    "Folder": ("folder", "FolderModel"),
    "Lost": ("lost", "LostModel"),
    "Gemma3ForCausalLM": ("plain", "PlainModel"),
    "GPTNeoXForCausalLM": ("own", "OwnModel"),
}
""",
    "model_executor/models/interfaces.py": "class SupportsEagle3: ...\nclass SupportsPP: ...\n",
    "model_executor/models/plain.py": """
from torch import nn
from .interfaces import SupportsEagle3, SupportsPP
class PlainModel(nn.Module, SupportsPP): ...
""",
    "model_executor/models/own.py": """
from torch import nn
from .interfaces import SupportsEagle3
class OwnModel(nn.Module, SupportsEagle3): ...
""",
    "model_executor/models/heir.py": """
from vllm.model_executor.models.own import OwnModel as Base
class Between(Base): ...
class HeirModel(Between): ...
""",
    "models/far.py": """
from vllm.model_executor.models.own import OwnModel
class FarModel(OwnModel): ...
""",
    "model_executor/models/folder/__init__.py": """
from .base import Base
class FolderModel(Base): ...
""",
    "model_executor/models/folder/base.py": """
from vllm.model_executor.models.interfaces import SupportsEagle3
class Base(SupportsEagle3): ...
""",
    "model_executor/models/lost.py": """
from .nowhere import Base
class LostModel(Base): ...
""",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / "vllm" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "vllm"


@pytest.mark.parametrize(
    ("architecture", "told"),
    [
        ("Plain", False),
        ("Own", True),
        ("Heir", True),
        ("Far", True),
        ("Folder", True),
        ("Lost", None),
        ("Unknown", None),
    ],
)
def test_the_class_is_followed_to_what_it_inherits(
    package: Path, architecture: str, told: bool | None
) -> None:
    assert hands_out(package, architecture) is told


def test_without_a_package_nothing_is_told(tmp_path: Path) -> None:
    assert hands_out(tmp_path, "Plain") is None


@pytest.mark.parametrize(("model", "refused"), [("gemma3", True), ("gpt_neox", False), ("llama", False)])
def test_a_plan_refuses_an_undeclared_model_that_hands_out_nothing(
    model: str, refused: bool, package: Path, tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_inside, "version", lambda name: "0.32.0")
    monkeypatch.setattr(vllm_inside, "installed_package", lambda: package)
    settings = EngineSettings(name="vllm", model=str(tiny_folder(model)))
    schema = Schema.declare(read_target(settings), ["layer1", "layer2"], "bfloat16")
    problems = boundary_problems(settings, schema)
    assert [problem.where for problem in problems] == ["engine"] * refused
    assert all("(SupportsEagle3), got Gemma3ForCausalLM" in problem.message for problem in problems)
