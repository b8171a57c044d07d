"""A kept norm is read back as it was, and one with changed bytes is refused."""

import base64

import pytest

from schemas.boundary import FINAL_NORMED
from schemas.check import dataset_trainer
from schemas.errors import RecordError
from schemas.final_norm import FinalNorm, NormRecipe, derivable, derived_spec
from schemas.record import canonical_json
from schemas.target import WeightsDigest
from schemas.wiring import TargetRole, Wiring
from tests.builders import tiny_norm, tiny_schema, tiny_target

TAKES_NORMED = Wiring(
    consumer="mine",
    kind="trainer",
    n_layers=4,
    fc=("embed", "layer2"),
    target=TargetRole(tensor=FINAL_NORMED, applies_norm=False),
    token_shift="consumer",
)


def test_it_is_read_back_as_it_was() -> None:
    norm = tiny_norm(bias=True)
    again = FinalNorm.from_json(norm.to_json(), "it")
    assert again == norm
    assert again.recipe == NormRecipe("rms_norm", 1e-5, 0.0, "before_scale")
    assert str(again.recipe) == "rms_norm, eps 1e-5"


@pytest.mark.parametrize("part", ["weight", "bias"])
def test_changed_or_cut_bytes_are_told(part: str) -> None:
    norm = tiny_norm(bias=True)
    data = base64.b64decode(getattr(norm, part))
    for changed, expected in ((bytes([data[0] ^ 1]) + data[1:], "sha256"), (data[:-2], part)):
        other = norm.model_dump(mode="json") | {part: base64.b64encode(changed).decode()}
        with pytest.raises(RecordError, match=f"{expected}: expected"):
            FinalNorm.from_json(canonical_json(other), "it")


def test_it_is_of_one_target() -> None:
    norm = tiny_norm()
    assert norm.problems(tiny_target()) == []
    assert [found.where for found in norm.problems(tiny_target(hidden_size=16))] == ["final_norm.hidden_size"]
    other = WeightsDigest(method="synthetic", sha256="f" * 64)
    changed = norm.model_copy(update={"weights": other})
    assert [found.where for found in changed.problems(tiny_target())] == ["final_norm.weights"]
    # Digests of two methods are not comparable.
    unlike = norm.model_copy(update={"weights": WeightsDigest(method="hub_file_hashes", sha256="f" * 64)})
    assert unlike.problems(tiny_target()) == []


def test_what_is_made_of_final_is_a_note_with_the_norm_and_an_error_without() -> None:
    schema, norm = tiny_schema(), tiny_norm()
    assert derivable(schema, norm) == (FINAL_NORMED,)
    assert derivable(schema, None) == derivable(tiny_schema(("embed", "layer2")), norm) == ()
    assert derivable(tiny_schema(("final", FINAL_NORMED)), norm) == ()
    spec = derived_spec(schema)
    assert (spec.name, spec.norm, spec.boundary) == (FINAL_NORMED, "post_norm", 4)
    (note,) = dataset_trainer(schema, TAKES_NORMED, norm=norm)
    assert (note.severity, note.kind) == ("note", "derived")
    assert note.message == "final_normed is made from final by the target's own norm (rms_norm, eps 1e-5)"
    (error,) = dataset_trainer(schema, TAKES_NORMED)
    assert error.severity == "error"
    assert "strata norm" in (error.repair or "")
    # Who reads the stored samples as they are has nobody who makes it.
    (raw,) = dataset_trainer(schema, TAKES_NORMED, raw=True, norm=norm)
    assert (raw.severity, raw.kind) == ("error", "missing")
