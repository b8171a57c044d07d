"""Our resolvers of ModelOpt and NeMo Automodel against their own readers, splits, shifts and captures."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.boundary import FINAL, FINAL_NORMED, name_of
from schemas.consumers.resolve import Shape, resolve_trainer
from schemas.wiring import Wiring
from tests.oracle import automodel_code, modelopt_code
from tests.oracle.comparison import ids_of
from tests.oracle.wheels import RELEASES

(MODELOPT,) = RELEASES["modelopt"]
(AUTOMODEL,) = RELEASES["automodel"]
DEPTHS = st.integers(8, 64)


def _wiring(
    name: str,
    version: str | None,
    n_layers: int,
    tensors: list[str] | None = None,
    ids: list[int] | None = None,
) -> Wiring:
    shape = Shape(model_type="llama", n_layers=n_layers)
    ours = resolve_trainer(name, version, shape, tensors, ids)
    assert ours.wiring is not None
    return ours.wiring


@pytest.mark.parametrize("name", ["modelopt-hf", "modelopt-vllm"])
def test_a_dump_is_read_by_name_and_normed_only_where_it_says_so(name: str, tmp_path: Path) -> None:
    record = {
        "input_ids": torch.arange(4),
        "hidden_states": torch.full((4, 1), 61.0),
        "aux_hidden_states": torch.full((4, 3), 3.0),
    }
    samples = []
    for flag in ({}, {"hidden_states_prenorm": True}):
        file = tmp_path / f"{len(flag)}.pt"
        torch.save(record | flag, file)
        samples.append(modelopt_code.read_dump(MODELOPT, file))
    for sample in samples:
        assert set(sample["base_model_hidden_states"].flatten().tolist()) == {61.0}
        assert set(sample["aux_hidden_states"].flatten().tolist()) == {3.0}
        assert sample["input_ids"].tolist() == [0, 1, 2, 3]
    # No dumper writes the flag, so the target is taken as it is, before the norm or after.
    target = _wiring(name, MODELOPT, 61).target
    assert target is not None
    assert target.applies_norm is modelopt_code.norms(MODELOPT, samples[0]) is False
    assert modelopt_code.norms(MODELOPT, samples[1])
    flagged = _wiring("modelopt-flagged", MODELOPT, 61).target
    assert flagged is not None
    assert flagged.applies_norm


@settings(deadline=None, max_examples=60)
@given(n_layers=DEPTHS)
def test_the_default_ids_of_modelopt(n_layers: int) -> None:
    ids = modelopt_code.default_ids(MODELOPT, n_layers)
    assert list(_wiring("modelopt-hf", MODELOPT, n_layers).fc) == [name_of(i + 1, n_layers) for i in ids]
    assert list(_wiring("modelopt-vllm", MODELOPT, n_layers).fc) == [name_of(i, n_layers) for i in ids]


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_streamed_slots_are_split_as_modelopt_splits_them(data: st.DataObject) -> None:
    n_layers = data.draw(DEPTHS)
    boundaries = data.draw(st.lists(st.integers(0, n_layers), min_size=2, max_size=6))
    fc, target, prenorm = modelopt_code.split_slots(MODELOPT, boundaries)
    names = [name_of(b, n_layers) for b in boundaries]
    ours = _wiring("modelopt-streaming", MODELOPT, n_layers, tensors=names)
    assert list(ours.fc) == [name_of(b, n_layers) for b in fc]
    assert ours.target is not None
    assert ours.target.tensor == name_of(target, n_layers)
    assert ours.target.applies_norm is prenorm is True


@pytest.mark.parametrize("name", ["modelopt-hf", "modelopt-flagged", "modelopt-vllm", "modelopt-streaming"])
def test_modelopt_shifts_as_its_wiring_says(name: str) -> None:
    ids = [3, 31, 59, 61] if name == "modelopt-streaming" else None
    wiring = _wiring(name, MODELOPT, 61, ids=ids)
    shifted = modelopt_code.shift(MODELOPT)
    assert shifted["ids"] == [1, 2, 3, 4, 5, 0]  # rolled, so the last is the first again
    assert shifted["states"] == [0, 1, 2, 3, 4, 5]
    assert wiring.token_shift == "consumer"
    assert wiring.position_start == shifted["positions"][0]


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_automodel_captures_as_its_wiring_says(data: st.DataObject) -> None:
    n_layers = data.draw(DEPTHS)
    ids = data.draw(st.one_of(st.none(), ids_of(n_layers)))
    shape = Shape(model_type="llama", n_layers=n_layers)
    ours = resolve_trainer("automodel", None, shape, ids=ids)
    try:
        theirs = automodel_code.capture(AUTOMODEL, ids, n_layers)
    except ValueError:
        assert ours.wiring is None or any(problem.severity == "error" for problem in ours.problems)
        return
    assert ours.wiring is not None
    assert list(ours.wiring.fc) == [name_of(b, n_layers) for b in theirs.boundaries]


def test_automodel_shifts_as_its_wiring_says() -> None:
    wiring = _wiring("automodel", None, 61)
    theirs = automodel_code.capture(AUTOMODEL, None, 61)
    assert theirs.ids == theirs.mask == theirs.logits == [1, 2, 3, 4, 5, 0]
    assert (wiring.token_shift, wiring.mask_alignment) == ("producer", "next")
    assert wiring.target is not None
    assert (wiring.target.tensor, wiring.target.applies_norm) == (FINAL_NORMED, False)
    assert FINAL not in wiring.fc
