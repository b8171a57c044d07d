"""Checks of what an engine hands out: by the prompt, and by the calibration."""

from dataclasses import replace

import numpy as np

from datagen.checks import PROFILE_MIN_TOKENS, NormProfile, capture_problem, profile_problems
from datagen.checks.profile import behind_first
from datagen.checks.prompt import norm_problems
from datagen.engines.base import Capture
from tests.builders import tiny_schema
from tests.datagen.prompt_builders import prompt_of

PROMPT = prompt_of([5, 6, 7, 8])
GOOD = Capture(
    token_ids=np.array([5, 6, 7, 8], np.int32), tensors={}, norms={"embed": np.ones(4, np.float32)}
)


def test_what_was_asked_for_passes() -> None:
    assert capture_problem(PROMPT, GOOD) is None


def test_swapped_token_ids_are_named_with_their_place() -> None:
    swapped = replace(GOOD, token_ids=np.array([5, 7, 6, 8], np.int32))
    found = capture_problem(PROMPT, swapped)
    assert found is not None
    assert found[0] == "wrong_content"
    assert str(found[1]) == "input_ids: expected token 6 at position 1, got 7"


def test_states_shortened_by_a_cached_prefix_are_named() -> None:
    found = capture_problem(PROMPT, replace(GOOD, token_ids=np.array([7, 8], np.int32)))
    assert found is not None
    assert str(found[1]) == "input_ids: expected the 4 tokens that were asked for, got 2"


def test_a_row_that_is_not_finite_is_named() -> None:
    norms = np.array([1, np.nan, 1, np.inf], np.float32)
    found = capture_problem(PROMPT, replace(GOOD, norms={"embed": norms}))
    assert found is not None
    assert found[0] == "non_finite"
    assert str(found[1]) == "embed: expected finite values, got NaN or Inf in 2 rows, first at token 1"


def test_swapped_tensors_depart_from_the_calibration() -> None:
    schema = tiny_schema()
    level = {"embed": 1.0, "layer2": 10.0, "final": 100.0}
    calibration = {name: NormProfile(value, value, value, value) for name, value in level.items()}
    part = {name: [np.full(PROFILE_MIN_TOKENS + 1, value, np.float32)] for name, value in level.items()}
    assert list(profile_problems(schema, part, calibration)) == []
    part["embed"], part["layer2"] = part["layer2"], part["embed"]
    found = list(profile_problems(schema, part, calibration))
    assert [problem.where for problem in found] == ["embed", "layer2"]
    assert "near 1 as on the audit set, got 10" in found[0].message
    assert found[0].message.endswith("as `layer2` has")


def test_one_sink_token_does_not_move_the_profile() -> None:
    norms = np.full(PROFILE_MIN_TOKENS, 150.0, np.float32)
    norms[0] = 25_000.0
    assert NormProfile.of(norms) == NormProfile(median=150.0, p90=150.0, p99=150.0, largest=25_000.0)


def test_rows_that_are_not_those_whose_norms_were_taken_are_named() -> None:
    rows = np.ones((4, 9), np.float32)
    norms = np.full(4, 3, np.float32)
    assert norm_problems(replace(GOOD, tensors={"embed": rows}, norms={"embed": norms})) == []
    late = rows.copy()
    late[2:] = 0
    (problem,) = norm_problems(replace(GOOD, tensors={"embed": late}, norms={"embed": norms}))
    assert str(problem) == ("embed: expected a row of the norm 3 that the engine computed, got 0 at token 2")


def test_zeros_are_no_states_but_for_the_embedding_of_some_tokens() -> None:
    norms = np.array([1, 0, 1, 1], np.float32)
    assert capture_problem(PROMPT, replace(GOOD, norms={"embed": norms})) is None
    for name, given in (("layer2", norms), ("embed", np.zeros(4, np.float32))):
        found = capture_problem(PROMPT, replace(GOOD, norms={name: given}))
        assert found is not None
        assert (found[0], found[1].where, found[1].kind) == ("wrong_content", name, "zeros")


def test_how_many_sinks_there_are_moves_no_profile_out_of_its_bracket() -> None:
    schema = tiny_schema()
    rng = np.random.default_rng(0)

    def sample(length: int, sinks: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        norms = rng.normal(150, 20, length).astype(np.float32)
        norms[: 1 + sinks] = 25_000.0
        return norms

    short, long = [sample(40, 1) for _ in range(8)], [sample(900, 1) for _ in range(4)]
    for audit, part in ((short, long), (long, [sample(40, 1) for _ in range(40)])):
        calibration = {"layer2": NormProfile.of(behind_first(audit))}
        assert list(profile_problems(schema, {"layer2": part}, calibration)) == []
        louder = [
            np.where(np.arange(len(piece)) % 20 == 9, 99_000, piece).astype(np.float32) for piece in part
        ]
        (problem,) = profile_problems(schema, {"layer2": louder}, calibration)
        assert "99% of the token norms" in problem.message
