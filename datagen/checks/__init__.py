"""Content checks where the states are made: is this what was asked for, and is it plausible?

Dtype, shape and width are the part writer's to refuse. Here stand the checks that need more than a schema:
`prompt` the token ids, `prefix` the audit set's rows of the same beginning, `profile` its token norms,
`recapture` a second pass over a sample, `binding` what the states of each say of its own ids (`part_binding`
for those of a part), `on_policy` what the target would have said, `witness` another engine's states of the
audit set.
"""

from datagen.checks.binding import Audited, Binding, calibrated, unbound
from datagen.checks.calibration import Calibration
from datagen.checks.on_policy import OnPolicy, OnPolicyCounts
from datagen.checks.part_binding import BindingCounts, PartBinding
from datagen.checks.prefix import PrefixRows
from datagen.checks.profile import PROFILE_MIN_TOKENS, NormProfile, profile_problems
from datagen.checks.prompt import capture_problem
from datagen.checks.recapture import (
    bears_witness,
    beginning,
    candidates,
    copied,
    recapture_problems,
)
from datagen.checks.sample import sample_problems

__all__ = [
    "PROFILE_MIN_TOKENS",
    "Audited",
    "Binding",
    "BindingCounts",
    "Calibration",
    "NormProfile",
    "OnPolicy",
    "OnPolicyCounts",
    "PartBinding",
    "PrefixRows",
    "bears_witness",
    "beginning",
    "calibrated",
    "candidates",
    "capture_problem",
    "copied",
    "profile_problems",
    "recapture_problems",
    "sample_problems",
    "unbound",
]
