"""vLLM's example connector of hidden states, for a machine without an accelerator.

Theirs copies through pinned memory on a CUDA stream. This one reads the same slots of the same cache with
their own `extract_from_kv_cache`, and hands them to their own writer.
"""

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1 import (
    example_hidden_states_connector as theirs,
)

AT_ONCE = SimpleNamespace(query=lambda: True, synchronize=lambda: None)
"""Stands for the CUDA event of a copy that is done as soon as it is asked for."""


class CpuHiddenStatesConnector(theirs.ExampleHiddenStatesConnector):  # type: ignore[misc]
    """Writes a safetensors file a request: `hidden_states` [token, slot, hidden] and `token_ids` [token]."""

    def _submit_async_write(self, pending: Any) -> None:
        within = torch.arange(self._block_size)
        blocks = torch.tensor(pending.block_ids, dtype=torch.long)
        slots = (blocks[:, None] * self._block_size + within).flatten()
        states = theirs.extract_from_kv_cache(self._kv_cache, slots, len(pending.token_ids))
        tensors = {
            "hidden_states": states.clone().contiguous(),
            "token_ids": pending.token_ids.clone(),
        }
        lock = self._lock_fds.pop(pending.req_id, None)
        write = self._executor.submit(self._write_tensors, tensors, AT_ONCE, pending.filename, lock)
        self._req_copy_events[pending.req_id] = AT_ONCE
        self._req_futures[pending.req_id] = write
        write.add_done_callback(partial(self._on_write_done, pending.req_id))
