"""What a vLLM server says of itself over HTTP, and what must be written on its command line.

Its version and its longest request are told (`/version`, `/v1/models`); which layers it captures is not: that
is declared in the settings, and held against its files when the engine is opened.
"""

import json
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from datagen.engines.errors import EngineError, OpeningError
from datagen.engines.server_requests import Requests
from datagen.engines.settings import EngineSettings
from schemas.problem import Problem

OLDEST = (0, 32)
"""The oldest release that was tried."""


class ServerFacts(NamedTuple):
    """A server's release, as `0.32.0`; the name that it serves the model by; a request's most tokens."""

    release: str
    served_model: str
    longest: int | None


def ask_facts(settings: EngineSettings, requests: Requests) -> ServerFacts:
    """Return what the server says; raises `OpeningError` with everything that is wrong with it."""
    try:
        version = str(requests.get("/version").get("version", ""))
        listed = requests.get("/v1/models").get("data")
    except EngineError as error:
        raise refused(settings, error.problems, settings.openai.layer_ids) from error
    problems = []
    release = version.partition("+")[0].removeprefix("v")
    pieces = release.split(".")[:2]
    if len(pieces) < 2 or not all(piece.isdigit() for piece in pieces):
        problems.append(_problem("version", f"expected vLLM's version, got {version!r}"))
    elif tuple(map(int, pieces)) < OLDEST:
        expected = f"expected vLLM {OLDEST[0]}.{OLDEST[1]} or newer"
        problems.append(_problem("version", f"{expected}, got {version}"))
    models = {
        str(one.get("id")): one for one in listed or () if isinstance(one, dict) and not one.get("parent")
    }
    wanted = settings.openai.served_model or (next(iter(models)) if len(models) == 1 else None)
    if wanted not in models:
        expected = f"expected {wanted}" if wanted else "expected one model, or engine.openai.served_model"
        problems.append(_problem("models", f"{expected}, got {', '.join(models) or 'none'}"))
    if problems or wanted is None:
        raise refused(settings, problems, settings.openai.layer_ids)
    longest = models[wanted].get("max_model_len")
    return ServerFacts(release, wanted, longest if isinstance(longest, int) else None)


def refused(settings: EngineSettings, problems: Sequence[Problem], ids: Sequence[int]) -> OpeningError:
    """Return the error that says what is wrong, and how a server is started that captures `ids`."""
    command = server_command(settings, ids)
    told = [
        one if one.repair else one.model_copy(update={"repair": f"start it as\n{command}"})
        for one in problems[:1]
    ]
    return OpeningError("the server cannot be used", [*told, *problems[1:]])


def server_command(settings: EngineSettings, ids: Sequence[int]) -> str:
    """Return the command line of a server that captures `ids` for these settings."""
    own = settings.openai
    folder = own.server_folder or own.shared_folder or "SHARED_FOLDER"
    speculative = {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": sorted(ids)}},
    }
    transfer = {
        "kv_connector": "ExampleHiddenStatesConnector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"shared_storage_path": folder},
    }
    words = ["VLLM_USE_V2_MODEL_RUNNER=0", "vllm", "serve", shlex.quote(settings.model or "MODEL")]
    words += ["--revision", settings.revision] if settings.revision else []
    words += ["--served-model-name", shlex.quote(own.served_model)] if own.served_model else []
    words += ["--dtype", settings.dtype, "--no-enable-prefix-caching"]
    words += ["--speculative-config", shlex.quote(json.dumps(speculative))]
    words += ["--kv-transfer-config", shlex.quote(json.dumps(transfer))]
    return " ".join(words)


def _problem(what: str, message: str) -> Problem:
    return Problem(where=f"engine.openai.base_url ({what})", kind="server", message=message)
