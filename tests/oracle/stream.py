"""A stand-in for a decoder whose residual stream counts its layers: after b layers, its only number is b.

Another system's own `forward` is run over it, so that what it captures says which boundaries it takes.
"""

import ast
from typing import Any

import torch

from tests.oracle.borrow import Definition, Inert


def embedded() -> torch.Tensor:
    """The residual stream after 0 layers, `[1, 1]`."""
    return torch.zeros(1, 1, dtype=torch.float64)


class Owner(Inert):
    """`self` for a borrowed method: what is set is there, all else is inert."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Ranks:
    """A process group of one."""

    is_first_rank = True
    is_last_rank = True
    world_size = 1
    rank_in_group = 0


class ResidualBatch:
    """SGLang's carrier of the residual, where the stream itself is `hidden_states`."""

    def start(self, *_: object) -> None: ...

    def final_norm(self, hidden: torch.Tensor, *_: object, capture: Any = None, **__: object) -> torch.Tensor:
        if capture is not None:
            capture(hidden.clone())
        return hidden * torch.nan

    def complete_output(self, hidden: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        return hidden

    def snapshot(self, hidden: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        return hidden.clone()


def norm(hidden: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
    """The final norm: nobody may mistake its output for a boundary."""
    normed = hidden * torch.nan
    return normed if residual is None else (normed, residual)


class Layer:
    """One decoder layer: adds 1 to the stream, and captures on its way in if it is handed a collector.

    That a collector handed down takes the *input* of the layer was read in the layers' own code
    (`prepare_attn_and_capture_last_layer_outputs`, later `StageBoundary.prepare`): it needs an accelerator.
    """

    def __init__(self, returns: tuple[str, ...]) -> None:
        self.returns = returns

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        streams = [a for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()]
        hidden = kwargs.get("hidden_states", streams[0] if streams else None)
        residual = kwargs.get("residual", streams[1] if len(streams) > 1 else None)
        if hidden is None:
            raise TypeError("the layer was handed no hidden state")
        stream: torch.Tensor = hidden if residual is None else hidden + residual
        collector = kwargs.get("captured_last_layer_outputs")
        if collector is not None and not isinstance(collector, Inert):
            getattr(collector, "capture", collector.append)(stream.clone())
        if kwargs.get("capture_output") is not None:
            kwargs["capture_output"](stream.clone())
        if self.returns == ("layer_outputs",):
            return (stream + 1,)
        hidden_name = next(name for name in self.returns if name != "residual")
        if "residual" in self.returns:  # the sum of the two is the stream, and neither alone is
            outputs = {hidden_name: torch.full_like(stream, 0.5), "residual": stream + 0.5}
        else:
            outputs = {hidden_name: stream + 1}
        values = tuple(outputs.get(name) for name in self.returns)
        return values if len(values) > 1 else values[0]


def layer_returns(forward: Definition) -> tuple[str, ...]:
    """The names to which a `forward` assigns what its layers return."""
    for node in ast.walk(forward):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _is_layer(node.value.func):
            target = node.targets[0]
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            return tuple(name.id for name in names if isinstance(name, ast.Name))
    raise LookupError("no layer call found")


def _is_layer(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return node.id in {"layer", "decoder_layer"}
    return isinstance(node, ast.Subscript) and ast.unparse(node.value) == "self.layers"


def taken(result: Any) -> list[int]:
    """The boundaries in what a `forward` returned: `(hidden, aux)`, or the hidden state alone.

    Raises ValueError where a captured tensor is no residual stream: half of a sum, or a normed state.
    """
    if not isinstance(result, tuple):
        return []
    aux = result[1]
    flat = aux.flatten().tolist() if isinstance(aux, torch.Tensor) else [float(a.item()) for a in aux]
    if any(value != value or value != int(value) for value in flat):
        raise ValueError(f"captured a tensor that is no boundary: {flat}")
    return [int(value) for value in flat]
