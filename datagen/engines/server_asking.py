"""One sample through a server: a request, its file, and whether both are of the ids that were asked for."""

import logging
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from datagen.engines.errors import EngineError
from datagen.engines.owned_names import new_name
from datagen.engines.server_folder import SharedFolder
from datagen.engines.server_requests import Requests
from datagen.engines.settings import OpenaiSettings
from schemas.problem import Problem

LOG = logging.getLogger(__name__)


class Told(NamedTuple):
    """What a server gave for one sample: `states` [T, slots, H] and the ids that it says it ran.

    `argmax` [T] is its own choice behind each position, where it was asked for.
    """

    token_ids: NDArray[np.int32]
    states: Tensor
    argmax: NDArray[np.int32] | None


class Asking:
    """Asks one server. May be used from several threads."""

    def __init__(self, settings: OpenaiSettings, served_model: str) -> None:
        self._settings = settings
        self._model = served_model
        self._requests = Requests(settings)
        self._folder = SharedFolder(Path(settings.shared_folder or "."), settings.server_folder)
        self._token = new_name()
        self._numbers = count()
        if settings.shared_folder is not None and (left := self._folder.sweep_the_dead()):
            LOG.warning(
                "%d files that runs which were killed left in the shared folder are removed", len(left)
            )

    def ask(self, sample: NDArray[np.int32], *, with_argmax: bool = False) -> Told:
        """Return the states of a sample; its file is gone afterwards, whatever happened.

        Raises `EngineError` when the server, its file or its ids are not what they should be.
        """
        name = f"{self._token}{next(self._numbers)}"
        body: dict[str, object] = {
            "model": self._model,
            "prompt": sample.tolist(),
            "max_tokens": 1,
            "temperature": 0,
            "return_token_ids": True,
            # Else a request with the same beginning may be served from the cache, and its states are shorter.
            "cache_salt": name,
        }
        if with_argmax:
            body["prompt_logprobs"] = 1
        answer = self._requests.complete(body, name)
        path = (answer.get("kv_transfer_params") or {}).get("hidden_states_path")
        if not isinstance(path, str):
            message = "expected hidden_states_path in kv_transfer_params, got none"
            raise _refusal(message, "is the server started with its hidden-state connector?")
        stored = self._folder.take(path, self._settings.timeout_seconds)
        if not np.array_equal(stored.token_ids, sample):
            got = f"got the states of {len(stored.token_ids)} others"
            raise _refusal(f"expected the states of the {len(sample)} ids that were asked for, {got}")
        if len(stored.states) != len(sample):
            message = f"expected {len(sample)} rows of states, got {len(stored.states)}"
            raise _refusal(message, "start the server with --no-enable-prefix-caching")
        choices: list[dict[str, Any]] = answer.get("choices") or [{}]
        (choice,) = choices
        ran = choice.get("prompt_token_ids")
        if ran is not None and ran != sample.tolist():
            raise _refusal(f"expected an answer to {len(sample)} ids, got one to {len(ran)} others")
        argmax = _argmax(choice, len(sample)) if with_argmax else None
        return Told(stored.token_ids.astype(np.int32), stored.states, argmax)

    def close(self) -> None:
        """Close the connections, and remove what requests that were given up have left."""
        self._requests.close()
        if self._settings.shared_folder is None:
            return
        left = self._folder.sweep(self._token)
        if left:
            LOG.warning("%d files of requests that were given up were left, and are removed", len(left))


def _argmax(choice: dict[str, Any], n_tokens: int) -> NDArray[np.int32]:
    """Return the likeliest next token of every position [T]: `prompt_logprobs[t]` is what t - 1 said."""
    ranked, said = choice.get("prompt_logprobs"), choice.get("token_ids")
    if not isinstance(ranked, list) or len(ranked) != n_tokens or not said:
        raise _refusal(f"expected prompt_logprobs of {n_tokens} tokens and token_ids, got neither or others")
    likeliest = [
        next(int(token) for token, one in position.items() if one["rank"] == 1) for position in ranked[1:]
    ]
    return np.asarray([*likeliest, said[0]], np.int32)


def _refusal(message: str, repair: str | None = None) -> EngineError:
    return EngineError(
        "the server gave something else",
        [Problem(where="answer", kind="states", message=message, repair=repair)],
    )
