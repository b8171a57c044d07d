"""Identity of samples and prompts: hashes of what they are, so that order and packing change nothing.

`sample_id` is sha256("strata.sample.v1\\0" + token ids as little-endian uint32). `prompt_id` is a hash of
what the run was asked for: resume goes by it, since in generate mode the token ids do not exist beforehand.
"""

import hashlib
import sys
from array import array
from collections.abc import Iterable

from schemas.record import canonical_json

SAMPLE_PREFIX = b"strata.sample.v1\0"
PROMPT_PREFIX = b"strata.prompt.v1\0"
ID_PATTERN = r"^[0-9a-f]{64}$"


def uint32_bytes(token_ids: Iterable[int]) -> bytes:
    """Return token ids as little-endian uint32; raises `OverflowError` for an id below 0 or above 2**32-1."""
    values = array("I", token_ids)
    if values.itemsize != 4:  # pragma: no cover - no such platform is supported
        raise RuntimeError(f"expected a 4-byte unsigned int, got {values.itemsize} bytes")
    if sys.byteorder == "big":  # pragma: no cover
        values.byteswap()
    return values.tobytes()


def sample_id(token_ids: Iterable[int]) -> str:
    """Return the identity of a sample, 64 hex digits.

    >>> sample_id([1, 2, 3])[:16]
    'a52131c0480c2891'
    """
    return hashlib.sha256(SAMPLE_PREFIX + uint32_bytes(token_ids)).hexdigest()


def prompt_id(token_ids: Iterable[int], request: dict[str, object]) -> str:
    """Return the identity of what a run was asked for: rendered ids, and how they are to be answered.

    `request` is `{"mode": "capture"}`, or in generate mode the sampling settings, seed and answer number too.
    """
    return hashlib.sha256(
        PROMPT_PREFIX + canonical_json(request) + b"\0" + uint32_bytes(token_ids)
    ).hexdigest()
