"""The shape of a model as its `config.json` says it, through transformers' config classes.

The file alone does not say it: fields may be left to a class's defaults (Gemma3's vocabulary), go by other
names (`n_layer` in GPT-2) or be nested (`text_config`). Importing transformers' configs imports torch where
it is installed (3 s), though no weight is read.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from transformers import AutoConfig

from datagen.engines.errors import OpeningError
from datagen.engines.positions import position_rule
from schemas.problem import Problem
from schemas.record import canonical_json


class Architecture(NamedTuple):
    """What `config.json` says of a model."""

    model_type: str
    name: str
    n_layers: int
    hidden_size: int
    vocab_size: int
    quantisation: str | None
    longest_sample: int | None
    """The most tokens that the model has positions for; `None` where its position code sets no limit."""


def read_config(folder: Path, *, trust_remote_code: bool) -> Any:
    """Return transformers' config of the model in `folder`.

    Raises `OpeningError` when the file is broken, or of a type that this transformers does not have.
    """
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code, local_files_only=True)
    except (OSError, ValueError, KeyError, ImportError) as error:
        repair = None
        if "trust_remote_code" in str(error):
            repair = "the model brings its own Python code: read it, then set engine.trust_remote_code = true"
        problem = Problem(
            where=str(folder / "config.json"), kind="config", message=_first_line(error), repair=repair
        )
        raise OpeningError("the model's config cannot be read", [problem]) from error


def architecture_of(config: Any) -> Architecture:
    """Return the architecture of the text model that `config` describes.

    Raises `OpeningError` with every size that is missing.
    """
    text = config.get_text_config(decoder=True)
    sizes: dict[str, Any] = {
        name: getattr(text, name, None) for name in ("num_hidden_layers", "hidden_size", "vocab_size")
    }
    problems = [
        Problem(where=name, kind="config", message=f"expected a positive number, got {value!r}")
        for name, value in sizes.items()
        if not isinstance(value, int) or value < 1
    ]
    if problems:
        raise OpeningError(f"the config of {config.model_type} does not describe a decoder", problems)
    names = getattr(config, "architectures", None) or [type(config).__name__.removesuffix("Config")]
    return Architecture(
        model_type=config.model_type,
        name=names[0],
        n_layers=sizes["num_hidden_layers"],
        hidden_size=sizes["hidden_size"],
        vocab_size=sizes["vocab_size"],
        quantisation=_quantisation(config),
        longest_sample=position_rule(text).longest,
    )


def architecture_of_file(config_file: Path) -> Architecture:
    """Return the architecture that a lone `config.json` describes, for a plan without the model.

    Raises `OpeningError` as `read_config` does.
    """
    return architecture_of(read_config_file(config_file))


def read_config_file(config_file: Path) -> Any:
    """Return the config of a lone `config.json` under any name; its own code is never run."""
    try:
        values = json.loads(config_file.read_text("utf-8"))
        # A type that transformers has needs no remote code, whatever the file points to.
        values.pop("auto_map", None)
        return AutoConfig.for_model(values.pop("model_type"), **values)
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        problem = Problem(where=str(config_file), kind="config", message=_first_line(error))
        raise OpeningError("the model's config cannot be read", [problem]) from error


def _quantisation(config: Any) -> str | None:
    for owner in (config, config.get_text_config(decoder=True)):
        value = getattr(owner, "quantization_config", None)
        if value is not None:
            plain = value if isinstance(value, dict) else value.to_dict()
            return canonical_json(json.loads(json.dumps(plain, default=str))).decode("ascii")
    return None


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
