"""What became of every record that was read: each is kept, a duplicate, or quarantined with a reason.

`read == kept + duplicates + n_quarantined` once a source is read to its end; nothing is lost in silence.
"""

from collections import Counter
from dataclasses import dataclass, field

from datagen.prompts.prompt import Prompt
from schemas.records import QuarantinedSample, QuarantineReason


def speakable(text: str) -> str:
    """Return `text` with what is no Unicode (half a surrogate pair out of a damaged file) replaced.

    >>> speakable("a\\udc80b")
    'a?b'
    """
    return text.encode("utf-8", "replace").decode("utf-8")


@dataclass
class PromptStats:
    """Counts of one reading, of the run `run_id`."""

    run_id: str
    read: int = 0
    """Records met, whole or not."""
    kept: int = 0
    duplicates: int = 0
    """Same token ids and same loss mask as a sample already kept."""
    truncated: int = 0
    """Cut at `max_tokens`; some of them may be quarantined afterwards for too few trained tokens."""
    trimmed_leading_answer: int = 0
    """Lost the answers before their first user turn."""
    trimmed_trailing_turns: int = 0
    """Lost the turns after their last answer."""
    n_tokens: int = 0
    n_trained_tokens: int = 0
    quarantined: Counter[QuarantineReason] = field(default_factory=Counter)

    @property
    def n_quarantined(self) -> int:
        return self.quarantined.total()

    def keep(self, prompt: Prompt) -> Prompt:
        """Count a prompt that is kept, and return it."""
        self.kept += 1
        self.n_tokens += prompt.n_tokens
        self.n_trained_tokens += prompt.n_trained
        return prompt

    def quarantine(
        self,
        reason: QuarantineReason,
        detail: str,
        source: str,
        conversation_id: str | None = None,
        prompt: Prompt | None = None,
    ) -> QuarantinedSample:
        """Count a sample that is not made, and return its record; `prompt` where its ids are known."""
        self.quarantined[reason] += 1
        return QuarantinedSample(
            source=source,
            reason=reason,
            detail=speakable(detail),
            run_id=self.run_id,
            conversation_id=speakable(conversation_id) if conversation_id is not None else None,
            prompt_id=prompt.prompt_id if prompt else None,
            sample_id=prompt.sample_id if prompt else None,
        )
