"""How each library lays hidden states out in a file: which keys hold the ids, and which the states.

The keys are those in the libraries' own files (speculators 0.9.0 and before its v0.4.0, SpecForge 0.2.0,
ModelOpt 0.47.0, EAGLE's `ge_data`). A key says nothing of which layer it is: that is for the numbers to say.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from schemas.boundary import EMBED, FINAL, FINAL_NORMED

IDS = ("input_ids", "token_ids")
PRENORM = "hidden_states_prenorm"
SCALES = "hidden_states_scales"


@dataclass(frozen=True)
class Layout:
    """`states` are the keys of hidden states: the draft's input first, the target's state last.

    `last` is the tensor that the layout's own trainer takes the last slot for, where it is one only.
    """

    title: str
    states: tuple[str, ...]
    last: str | None = None
    claims: bool = False
    """Whether a key says which tensor it is."""


def layout_of(content: object) -> Layout | None:
    """Return the layout of what a file holds, `None` where it is none that is known.

    >>> layout_of({"input_ids": 0, "hidden_state": 0, "aux_hidden_state": 0}).title
    'SpecForge'
    """
    if isinstance(content, list | tuple):
        return Layout("list of states", ("",)) if _holds_tensors(content) else None
    if isinstance(content, torch.Tensor):
        return Layout("one tensor", ("",))
    if not isinstance(content, Mapping):
        return None
    if {"hidden_state", "aux_hidden_state"} <= content.keys():
        return Layout("SpecForge", ("aux_hidden_state", "hidden_state"), FINAL_NORMED)
    if {"hidden_states", "aux_hidden_states"} <= content.keys():
        last = {True: FINAL, False: FINAL_NORMED}.get(bool(content[PRENORM])) if PRENORM in content else None
        return Layout("ModelOpt", ("aux_hidden_states", "hidden_states"), last)
    if "hidden_states" in content:
        return _hidden_states(content)
    if "hidden_state" in content:
        return Layout("EAGLE", ("hidden_state",), FINAL_NORMED)
    named = sorted((key for key in content if isinstance(key, str) and _is_named(key)), key=_depth)
    return Layout("named tensors", tuple(named), claims=True) if named else None


def _hidden_states(content: Mapping[object, object]) -> Layout:
    value = content["hidden_states"]
    if isinstance(value, list | tuple):
        return Layout("speculators v1 (a list)", ("hidden_states",))
    if "target_last_hidden_states" in content:
        return Layout("SpecForge DSpark", ("hidden_states", "target_last_hidden_states"), FINAL_NORMED)
    if "token_ids" in content:
        return Layout("speculators", ("hidden_states",), FINAL)
    return Layout("hidden_states", ("hidden_states",))


def _holds_tensors(content: list[object] | tuple[object, ...]) -> bool:
    return bool(content) and all(isinstance(value, torch.Tensor) for value in content)


def _depth(key: str) -> int:
    known = {EMBED: 0, FINAL: 10**6, FINAL_NORMED: 10**6 + 1}
    return known[key] if key in known else int(key.removeprefix("layer"))


def _is_named(key: str) -> bool:
    return key in (EMBED, FINAL, FINAL_NORMED) or (key.startswith("layer") and key[5:].isdecimal())
