"""The same token ids are one sample: made once, and with one loss mask.

Holds about 250 bytes a sample: half of the hash of its ids (16 bytes tell a million million apart), a digest
of its mask, and the name of where it was met.
"""

import hashlib
from collections.abc import Iterable, Iterator

from datagen.prompts.prompt import Prompt
from datagen.prompts.stats import PromptStats
from schemas.records import QuarantinedSample

KEY_BYTES = 16
MASK_BYTES = 8


def dedupe(
    prompts: Iterable[Prompt | QuarantinedSample], stats: PromptStats
) -> Iterator[Prompt | QuarantinedSample]:
    """Yield each sample once; the same ids with another loss mask are quarantined and name both sources."""
    met: dict[bytes, bytes] = {}
    for prompt in prompts:
        if isinstance(prompt, QuarantinedSample):
            yield prompt
            continue
        key = bytes.fromhex(prompt.sample_id)[:KEY_BYTES]
        mask = hashlib.blake2b(prompt.loss_mask.tobytes(), digest_size=MASK_BYTES).digest()
        first = met.get(key)
        if first is None:
            met[key] = mask + prompt.source.encode()
            yield stats.keep(prompt)
        elif first[:MASK_BYTES] == mask:
            stats.duplicates += 1
        else:
            other = first[MASK_BYTES:].decode()
            detail = f"{prompt.source} has the token ids of {other}, but another loss mask"
            yield stats.quarantine("mask_conflict", detail, prompt.source, prompt.conversation_id, prompt)
