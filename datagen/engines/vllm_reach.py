"""What is asked of vLLM's workers beside answering: mixed into their class, called on every rank.

Which layers are captured may change between requests (nothing is compiled: `enforce_eager`), so that an audit
needs no second load. The head, the norm and the embedding are the loaded model's own, sharded as it is.

Rows travel as bytes, so that they pass through any of vLLM's ways to its workers. Rank 0 answers, others say
`None`. Shapes: R rows, H the width.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datagen.engines.shared_rows import Segment, lay_out_all
from datagen.engines.vllm_connector import TRAY

LOGIT_BYTES = 64 << 20
"""Bytes of float32 logits that the head makes at a time."""
NORMS = ("norm", "norm_f")
"""What vLLM's decoders call their final norm; the second one is Nemotron-H's."""
_CARRIED = {torch.bfloat16: torch.uint16}
"""numpy has no bfloat16: it travels as its bits."""


class HandedOver(NamedTuple):
    """The states of one request: its arrays, or the shared memory that they lie in."""

    token_ids: NDArray[np.int32]
    arrays: dict[str, NDArray[np.generic]] | Segment


class Reach:
    """Mixed into vLLM's worker, which has `rank`, `get_model` and `device`."""

    rank: int
    device: torch.device

    def strata_capture_layers(self, ids: Sequence[int]) -> None:
        """Capture these ids from the next request on; as many as at the start."""
        self._strata_model().set_aux_hidden_state_layers(tuple(ids))

    def strata_hand_over(self, tags: Sequence[str], prefix: str | None) -> dict[str, HandedOver] | None:
        """Return the states of these requests, once they are in host memory; each once.

        With `prefix` they are laid in shared memory, in segments that begin so. Raises OSError where there is
        no room for all: then none is left there.
        """
        if self.rank != 0:
            return None
        token_ids: dict[str, NDArray[np.int32]] = {}

        def taken() -> Iterator[tuple[str, dict[str, NDArray[np.generic]]]]:
            for tag in tags:
                one = TRAY.pop(tag)
                token_ids[tag] = one.token_ids
                yield tag, {name: _bits(tensor) for name, tensor in one.outbound.wait().items()}

        try:
            laid: Mapping[str, Any] = dict(taken()) if prefix is None else lay_out_all(prefix, taken())
        finally:
            for tag in tags:
                TRAY.pop(tag, None)
        return {tag: HandedOver(token_ids[tag], laid[tag]) for tag in tags}

    def strata_choose(self, rows: bytes) -> bytes | None:
        """Return int32 [R, 2] for rows [R, H]: `argmax(lm_head(norm(rows)))`, 1 where another is as good
        but for one rounding."""
        with torch.inference_mode():
            model, holder = self._strata_model(), self._strata_holder()
            norm = norm_of(holder)
            hidden = self._strata_rows(rows, norm)
            n_vocab = int(getattr(holder, "vocab_size", None) or 1 << 17)
            chunk = max(1, LOGIT_BYTES // (n_vocab * 4))
            chosen = []
            for some in torch.split(hidden, chunk):
                logits = model.compute_logits(norm(some.clone()))
                # With tensor parallel the ranks that do not sample may get none.
                if logits is not None:
                    best = logits.topk(2, dim=-1).values.float()
                    # The forward norms the sum of its last layer before it is rounded to what is stored.
                    tied = best[:, 0] - best[:, 1] <= torch.finfo(hidden.dtype).eps * best[:, 0].abs()
                    chosen.append(torch.stack([logits.argmax(-1), tied], dim=1).to(torch.int32).cpu())
        return torch.cat(chosen).numpy().tobytes() if self.rank == 0 else None

    def strata_norm(self, rows: bytes) -> bytes | None:
        """Return `norm(rows)` [R, H]: what goes into the lm_head."""
        with torch.inference_mode():
            norm = norm_of(self._strata_holder())
            normed = norm(self._strata_rows(rows, norm))
        return _bits(normed.cpu()).tobytes() if self.rank == 0 else None

    def strata_embed(self, token_ids: bytes) -> bytes | None:
        """Return what the embedding layer makes of int32 ids [R]: [R, H] in the model's dtype."""
        with torch.inference_mode():
            ids = torch.from_numpy(np.frombuffer(token_ids, np.int32).astype(np.int64)).to(self.device)
            rows = self._strata_holder().embed_input_ids(ids)
        return _bits(rows.cpu()).tobytes() if self.rank == 0 else None

    def strata_facts(self) -> dict[str, str]:
        """Return what a run records of the loaded model; `ends` is why its norm and embedding are not found,
        empty where they are."""
        device = self.device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        try:
            self._strata_holder()
            ends = ""
        except NotImplementedError as error:
            ends = str(error)
        return {"class": type(self._strata_model()).__name__, "device": name, "ends": ends}

    def _strata_rows(self, rows: bytes, norm: Any) -> Tensor:
        weight = next(norm.parameters())
        flat = torch.frombuffer(bytearray(rows), dtype=weight.dtype)
        return flat.reshape(-1, weight.shape[-1]).to(self.device)

    def _strata_model(self) -> Any:
        return self.get_model()  # type: ignore[attr-defined]

    def _strata_holder(self) -> Any:
        """Return the decoder: the module whose forward embeds, runs the layers and norms."""
        model = self._strata_model()
        language = model.get_language_model() if hasattr(model, "get_language_model") else model
        holder = getattr(language, "model", language)
        missing = [] if any(hasattr(holder, name) for name in NORMS) else [" or ".join(NORMS)]
        missing += [] if hasattr(holder, "embed_input_ids") else ["embed_input_ids"]
        if missing:
            expected = f"expected {type(holder).__name__} to have {' and '.join(missing)}"
            raise NotImplementedError(f"{expected}, got a decoder that goes by other names")
        return holder


def norm_of(holder: Any) -> Any:
    """Return the final norm of a decoder that has one."""
    return next(getattr(holder, name) for name in NORMS if hasattr(holder, name))


def _bits(tensor: Tensor) -> NDArray[Any]:
    """Return the tensor's memory as an array of a dtype that numpy has."""
    carried = _CARRIED.get(tensor.dtype)
    return (tensor if carried is None else tensor.contiguous().view(carried)).numpy()
