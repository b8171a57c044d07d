"""Takes declared boundaries out of a forward: hooks that stand only while it runs.

`embed` is the input of decoder layer 0 (after an embedding's scaling or positions), boundary b the output of
layer b-1, `final_normed` the output of the final norm.

Shapes: B samples, S padded length, H width.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from schemas.boundary import Place

Take = Callable[[str, Tensor], None]


@contextmanager
def tapped(
    layers: nn.ModuleList, norm: nn.Module | None, places: Mapping[str, Place], take: Take
) -> Iterator[None]:
    """Call `take(name, hidden)`, hidden [B, S, H], for each of `places` while the block runs the model.

    The tensor is the model's own: whoever keeps it past the call has to copy it.
    """
    with ExitStack() as stack:
        for name, place in places.items():
            stack.callback(_attach(layers, norm, place, partial(take, name)).remove)
        yield


def _attach(
    layers: nn.ModuleList, norm: nn.Module | None, place: Place, take: Callable[[Tensor], None]
) -> RemovableHandle:
    if place.norm == "post_norm":
        if norm is None:
            raise ValueError("expected a final norm to hook, got none")
        return norm.register_forward_hook(lambda _module, _args, output: take(first(output)))
    if place.boundary == 0:
        return layers[0].register_forward_pre_hook(
            lambda _module, args, kwargs: take(args[0] if args else kwargs["hidden_states"]),
            with_kwargs=True,
        )
    return layers[place.boundary - 1].register_forward_hook(
        lambda _module, _args, output: take(first(output))
    )


def first(output: Any) -> Tensor:
    """Return a module's hidden states: its output, or the first of a tuple of outputs."""
    tensor = output[0] if isinstance(output, (tuple, list)) else output
    if not isinstance(tensor, Tensor):
        raise TypeError(f"expected a tensor, got {type(tensor).__name__}")
    return tensor
