"""The draft contract: what weights were trained with beside their wiring, and whether a server keeps it.

Norms, RoPE, window, vocabulary and tying are read from a draft's config; what each server version reads of
them, and which weights it skips without a word, is data (`servers.toml`).
"""

from schemas.contract.check import contract_problems
from schemas.contract.differ import differences
from schemas.contract.draft import DraftContract, Norms, Rope, Shape, Vocabulary
from schemas.contract.read import read_contract

__all__ = [
    "DraftContract",
    "Norms",
    "Rope",
    "Shape",
    "Vocabulary",
    "contract_problems",
    "differences",
    "read_contract",
]
