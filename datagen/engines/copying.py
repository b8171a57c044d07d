"""Carries tensors from the device to host memory while the device goes on.

On CUDA a side stream a device waits for what was computed so far and copies into pinned memory; the host is
not held up until `wait`. Pinned memory comes from torch's caching host allocator: a buffer goes back to it
when the last array on it is dropped, and not before a copy into it has ended, so the pool is as large as what
the caller holds at once. On the CPU there is nothing to carry.
"""

from collections.abc import Mapping

import torch
from torch import Tensor


class Outbound:
    """Copies that are under way."""

    def __init__(self, tensors: dict[str, Tensor], events: list[torch.cuda.Event]) -> None:
        self._tensors = tensors
        self._events = events

    def wait(self) -> Mapping[str, Tensor]:
        """Return the tensors in host memory, once they are whole."""
        for event in self._events:
            event.synchronize()
        return self._tensors


class Carrier:
    """Starts copies, on a side stream for each device that it meets."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def start(self, tensors: Mapping[str, Tensor]) -> Outbound:
        """Start to copy `tensors`; those of the CPU are handed on as they are."""
        host = {name: tensor for name, tensor in tensors.items() if tensor.device.type == "cpu"}
        events = []
        for device in {tensor.device for tensor in tensors.values() if tensor.device.type == "cuda"}:
            here = {name: tensor for name, tensor in tensors.items() if tensor.device == device}
            copies, event = self._copy(device, here)
            host.update(copies)
            events.append(event)
        return Outbound({name: host[name] for name in tensors}, events)

    def _copy(
        self, device: torch.device, tensors: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], torch.cuda.Event]:
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        side = self._streams[device]
        side.wait_stream(torch.cuda.current_stream(device))
        copies = {}
        with torch.cuda.stream(side):
            for name, tensor in tensors.items():
                pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
                copies[name] = pinned.copy_(tensor, non_blocking=True)
                # Else the allocator may hand the memory to the next forward before the copy has read it.
                tensor.record_stream(side)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(side)
        return copies, event
