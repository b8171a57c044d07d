"""Memory is used again when no tensor looks into it, and never before."""

import threading

import torch

from service.client.stream.memory import Memory


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
