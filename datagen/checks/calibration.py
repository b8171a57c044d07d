"""What a run's workers hold its parts against: all of it is read from the audit set."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from datagen.checks.binding import Audited
from datagen.checks.prefix import PrefixRows
from datagen.checks.profile import NormProfile


@dataclass(frozen=True)
class Calibration:
    """Each tensor's profile of token norms, the rows of the audit set's beginnings, and its last states.

    Empty where a run makes no audit set: then only the prompt and a second pass are left to check by. A
    sample of more than `parting` tokens has the states of a shorter one at its first token only.
    """

    profiles: Mapping[str, NormProfile] = field(default_factory=dict)
    prefix: PrefixRows | None = None
    audited: tuple[Audited, ...] = ()
    parting: int | None = None

    def parts(self, n_tokens: int) -> bool:
        """Say whether a sample is so long that its beginning has other states than a short one's."""
        return self.parting is not None and n_tokens > self.parting
