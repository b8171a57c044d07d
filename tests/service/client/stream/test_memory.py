"""Memory is used again when no tensor looks into it, and never before."""

import threading
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
import torch

from service.client.stream.batch import Placed
from service.client.stream.memory import Memory
from tests.service.client.memory_source import source_of
from tests.service.client.stream.asking import stream_of


def test_memory_is_used_again_when_its_tensors_are_gone() -> None:
    memory = Memory()
    first = memory.take(1000)
    place = first.data_ptr()
    del first
    assert memory.take(900).data_ptr() == place


def test_memory_is_not_used_again_while_a_view_of_it_lives() -> None:
    memory = Memory()
    first = memory.take(64)
    view = first.view(torch.bfloat16).view(4, 8)[1:]
    view.fill_(1.5)
    del first
    other = memory.take(64)
    other.fill_(0)
    assert (view == 1.5).all()
    assert other.data_ptr() != view.untyped_storage().data_ptr()


def test_much_larger_memory_is_not_spent_on_little() -> None:
    memory = Memory()
    large = memory.take(1_000_000)
    place = large.data_ptr()
    del large
    assert memory.take(10).data_ptr() != place
    assert memory.take(990_000).data_ptr() == place


def test_what_was_used_last_is_used_first() -> None:
    memory = Memory()
    taken = [memory.take(1000) for _ in range(3)]
    places = [tensor.data_ptr() for tensor in taken]
    while taken:
        del taken[0]
    assert [memory.take(1000).data_ptr() for _ in range(3)] == places[-1:] * 3
    held = [memory.take(1000) for _ in range(3)]
    assert [tensor.data_ptr() for tensor in held] == places[::-1]


def test_only_some_is_kept() -> None:
    memory = Memory(kept=2)
    taken = [memory.take(100) for _ in range(5)]
    taken.clear()
    assert len(memory._free) == 2


def test_nothing_and_shapes() -> None:
    memory = Memory()
    assert memory.take(0).shape == (0,)
    assert memory.empty((2, 3, 4), torch.bfloat16).shape == (2, 3, 4)
    assert memory.empty((1, 0, 4), torch.float32).numel() == 0


@pytest.mark.parametrize("format", ["named", "consumer", "consumer_samples"])
def test_where_cuda_is_all_of_a_batch_is_pinned(monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    """Without CUDA: torch is asked for pinned memory, here it gives other memory."""
    pinned: list[int] = []
    empty, expected = torch.empty, list(stream_of(source_of([3, 4, 9]), format=format))

    def pin(*shape: Any, pin_memory: bool = False, **given: Any) -> torch.Tensor:
        tensor = empty(*shape, **given)
        pinned.extend([tensor.data_ptr()] * pin_memory)
        return tensor

    def pin_again(tensor: torch.Tensor) -> torch.Tensor:
        pinned.append(tensor.data_ptr())
        return tensor

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.empty", pin)
    monkeypatch.setattr("torch.Tensor.pin_memory", pin_again)
    for batch, other in zip(stream_of(source_of([3, 4, 9]), format=format), expected, strict=True):
        for tensor, same in zip(tensors_of(batch), tensors_of(other), strict=True):
            assert tensor.data_ptr() in pinned
            assert torch.equal(tensor, same)


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from tensors_of(each)
    elif isinstance(value, Placed):
        for each in fields(value):
            yield from tensors_of(getattr(value, each.name))


def test_threads_never_share_memory() -> None:
    memory, wrong = Memory(), []

    def work(value: int) -> None:
        for _ in range(300):
            tensor = memory.take(4096)
            tensor.fill_(value)
            if not (tensor == value).all():
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
