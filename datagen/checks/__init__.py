"""Content checks where the states are made: is this what was asked for, and is it plausible?

Dtype, shape and width are the part writer's to refuse. Here stand the checks that need more than a schema:
`prompt` the token ids, `prefix` the audit set's rows of the same beginning, `profile` its token norms,
`recapture` a second pass over a sample, `witness` another engine's states of the audit set.
"""

from datagen.checks.calibration import Calibration
from datagen.checks.prefix import PrefixRows
from datagen.checks.profile import PROFILE_MIN_TOKENS, NormProfile, profile_problems
from datagen.checks.prompt import capture_problem
from datagen.checks.recapture import (
    bears_witness,
    beginning,
    candidates,
    copied_beginning,
    recapture_problems,
)
from datagen.checks.sample import sample_problems

__all__ = [
    "PROFILE_MIN_TOKENS",
    "Calibration",
    "NormProfile",
    "PrefixRows",
    "bears_witness",
    "beginning",
    "candidates",
    "capture_problem",
    "copied_beginning",
    "profile_problems",
    "recapture_problems",
    "sample_problems",
]
