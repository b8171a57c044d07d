"""All checks of one sample, cheapest first; they stop at the first kind that finds something."""

from datagen.checks.calibration import Calibration
from datagen.checks.prefix import PREFIX_ROWS
from datagen.checks.prompt import capture_problem, is_whole, norm_problems
from datagen.engines.base import Capture
from datagen.prompts.prompt import Prompt
from schemas.problem import Problem
from schemas.records import QuarantineReason
from schemas.schema import Schema


def sample_problems(
    schema: Schema, calibration: Calibration, prompt: Prompt, capture: Capture
) -> tuple[QuarantineReason, list[Problem]] | None:
    """Return why this capture cannot be the prompt's, or `None`.

    What has not the schema's tensors passes: the part writer says what is missing or too much.
    """
    found = capture_problem(prompt, capture)
    if found is not None:
        return found[0], [found[1]]
    if not is_whole(schema, capture):
        return None
    problems = norm_problems(capture)
    if not problems and calibration.prefix is not None:
        n_rows = 1 if calibration.parts(len(capture.token_ids)) else PREFIX_ROWS
        problems = calibration.prefix.problems(capture, n_rows)
    return ("wrong_content", problems) if problems else None
