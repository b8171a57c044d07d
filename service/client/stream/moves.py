"""Who moves tokens against states: by a wiring's `token_shift`, once, and never otherwise.

Samples are stored unshifted: row i has state i and token i. A trainer pairs state i with token i+1. Where
its own code moves them (`"consumer"`), nothing is moved here. Where it takes tokens that were moved
(`"producer"`), row i is given token i+1, and the mask as it aligns it: mask[i+1] for `"next"`, mask[i] for
`"same"`. A sample's last row has no next token: its token is 0 and its mask is off.
"""

from dataclasses import replace

import torch

from schemas.wiring import Wiring
from service.client.stream.fetched import Fetched


def moved(fetched: Fetched, wiring: Wiring) -> Fetched:
    """Return the tokens as a wiring's trainer takes them; states stay where they are."""
    if wiring.token_shift != "producer":
        return fetched
    mask = fetched.loss_mask
    if wiring.mask_alignment == "next":
        mask = _left(mask, fetched.offsets)
    else:
        mask = mask.clone()
        mask[_lasts(fetched.offsets)] = False
    return replace(fetched, input_ids=_left(fetched.input_ids, fetched.offsets), loss_mask=mask)


def _left(values: torch.Tensor, offsets: tuple[int, ...]) -> torch.Tensor:
    moved = torch.zeros_like(values)
    moved[:-1] = values[1:]
    moved[_lasts(offsets)] = 0
    return moved


def _lasts(offsets: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor(offsets[1:], dtype=torch.int64) - 1
