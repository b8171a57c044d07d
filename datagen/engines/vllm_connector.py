"""vLLM's connector of ours: takes a request's states out of its cache when it is done, and writes no file.

vLLM's `extract_hidden_states` lays the captured layers of every token into a cache of their own, and asks a
connector when a request has ended, before its blocks are given to another. Theirs writes a file a request;
this one lays the states on `TRAY`, in host memory, under the tag that the request came with, and `Reach`
hands them over from there. It keeps their search for the cache and its block size, which differ by release.

The gather is queued behind the forwards on the same stream, so that the blocks may be given away at once; the
copies to pinned memory run on a side stream (`copying`). On CUDA this was not run.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import (
    ExampleHiddenStatesConnector,
)

from datagen.engines.copying import Carrier, Outbound

TAG = "strata_tag"
SLOTS = "strata_slots"
NORM = "norm:"


class Taken(NamedTuple):
    """What one request left: the ids that the scheduler ran, and its states on their way to host memory."""

    token_ids: NDArray[np.int32]
    outbound: Outbound


TRAY: dict[str, Taken] = {}
"""The states by tag, in the process of the worker of rank 0."""
LEFT: set[str] = set()
"""Tags of requests whose states are on the tray, in the process of the scheduler."""


class Leaving(NamedTuple):
    """A request that has ended and whose blocks are still its own."""

    tag: str
    request_id: str
    slots: dict[str, int]
    token_ids: list[int]
    block_ids: list[int]


@dataclass
class LeavingRequests(KVConnectorMetadata):  # type: ignore[misc, unused-ignore]
    """What the scheduler tells the workers with a step."""

    leaving: list[Leaving] = field(default_factory=list)


class StatesConnector(ExampleHiddenStatesConnector):  # type: ignore[misc, unused-ignore]
    """Lays a tagged request's states on `TRAY`: NAME [T, H] in the model's dtype, `norm:NAME` [T] float32."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._leaving: list[Leaving] = []
        self._under_way: dict[str, str] = {}
        self._carrier = Carrier()

    # The scheduler's side.

    def build_connector_meta(self, scheduler_output: Any) -> LeavingRequests:  # noqa: ARG002
        """Tell the workers which requests have ended since the last step."""
        leaving, self._leaving = self._leaving, []
        return LeavingRequests(leaving)

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Keep the blocks of a tagged request until its states are taken; others have none to take."""
        asked = request.kv_transfer_params or {}
        if TAG not in asked:
            return False, None
        tag = str(asked[TAG])
        self._leaving.append(
            Leaving(
                tag,
                request.request_id,
                dict(asked[SLOTS]),
                list(request.prompt_token_ids),
                list(block_ids),
            )
        )
        self._under_way[request.request_id] = tag
        return True, None

    def update_connector_output(self, connector_output: Any) -> None:
        """Note whose states are on the tray."""
        for request_id in connector_output.finished_sending or ():
            tag = self._under_way.pop(request_id, None)
            if tag is not None:
                LEFT.add(tag)

    # The workers' side.

    def wait_for_save(self) -> None:
        """Do nothing: a forward never waits for a copy."""

    def get_finished(
        self,
        finished_req_ids: set[str],  # noqa: ARG002
    ) -> tuple[set[str] | None, set[str] | None]:
        """Take the states of requests that have ended; other ranks hold the same states and take none."""
        if not self._is_tp_rank_zero or not self.has_connector_metadata():
            return None, None
        told = self._get_connector_metadata()
        done = set()
        for one in told.leaving if isinstance(told, LeavingRequests) else ():
            taken = self._carrier.start(self._gathered(one))
            TRAY[one.tag] = Taken(np.asarray(one.token_ids, np.int32), taken)
            done.add(one.request_id)
        return done or None, None

    def _gathered(self, one: Leaving) -> dict[str, Tensor]:
        """Return on the device a copy of each asked slot [T, H] and of its norms [T].

        The cache is [block, slot, token of the block, H].
        """
        cache = self._kv_cache
        if cache is None:
            raise RuntimeError("expected the cache of hidden states before the first request, got none")
        blocks = torch.tensor(one.block_ids, dtype=torch.long).to(cache.device, non_blocking=True)
        out: dict[str, Tensor] = {}
        for name, slot in one.slots.items():
            rows = cache[blocks, slot].flatten(0, 1)[: len(one.token_ids)]
            if len(rows) != len(one.token_ids):
                expected = f"expected {len(one.token_ids)} rows of {name} in the cache"
                raise RuntimeError(f"{expected}, got {len(rows)} of request {one.tag}")
            out[name] = rows
            out[f"{NORM}{name}"] = torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float32)
        return out
