"""Names and places are two ways to say the same thing, and nothing else is a name."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.boundary import NORM_STATES, Place, all_names, name_of, place_of
from schemas.problem import Problem


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_a_name_and_its_place_are_inverse(data: st.DataObject) -> None:
    n_layers = data.draw(st.integers(1, 500))
    boundary = data.draw(st.integers(0, n_layers))
    norm = data.draw(st.sampled_from(NORM_STATES if boundary == n_layers else NORM_STATES[:1]))
    assert place_of(name_of(boundary, n_layers, norm), n_layers) == Place(boundary, norm)


@pytest.mark.parametrize("n_layers", [1, 2, 3, 30, 61])
def test_every_name_of_a_model_is_distinct_and_leads_back_to_itself(n_layers: int) -> None:
    names = all_names(n_layers)
    assert len(set(names)) == len(names) == n_layers + 2
    places = [place_of(name, n_layers) for name in names]
    assert [
        name_of(place.boundary, n_layers, place.norm) for place in places if isinstance(place, Place)
    ] == [*names]


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=12) | st.from_regex(r"(layer|embed|final)[0-9_a-z]{0,4}", fullmatch=True))
def test_a_text_is_a_name_of_the_model_or_a_problem(text: str) -> None:
    place = place_of(text, 30)
    assert isinstance(place, Place) == (text in all_names(30))


def test_the_last_state_before_and_after_the_norm_are_two_tensors() -> None:
    """transformers' `hidden_states[L]` is taken after the final norm: it is `final_normed`, never `final`."""
    assert place_of("final", 61) == Place(61, "pre_norm")
    assert place_of("final_normed", 61) == Place(61, "post_norm")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("layer0", id="0"),
        pytest.param("layer03", id="leading-zero"),
        pytest.param("layer-1", id="negative"),
        pytest.param("layer٣", id="arabic-digit"),
        pytest.param("layer1٣", id="arabic-digit-second"),
        pytest.param("layer³", id="power"),
        pytest.param("layer3.0", id="float"),
        pytest.param("", id="empty"),
        pytest.param("layer", id="no-number"),
        pytest.param("layer3\n", id="newline"),
        pytest.param(" layer3", id="blank"),
        pytest.param("Final", id="case"),
        pytest.param("final_norm", id="cut"),
        pytest.param("layer" + "9" * 5000, id="huge"),
    ],
)
def test_what_is_no_name_is_a_problem_that_says_the_names(name: str) -> None:
    problem = place_of(name, 9)
    assert isinstance(problem, Problem)
    assert (problem.where, problem.kind) == (name, "tensor_name")
    assert problem.message == f"expected embed, layer1 to layer8, final or final_normed, got {name!r}"


@pytest.mark.parametrize("boundary", [61, 62, 999_999])
def test_a_layer_that_the_model_lacks_is_a_problem_that_says_its_depth(boundary: int) -> None:
    problem = place_of(f"layer{boundary}", 61)
    assert isinstance(problem, Problem)
    assert problem.message == f"expected a layer between 1 and 60 of a model with 61 layers, got {boundary}"


def test_a_model_of_one_layer_has_no_inner_boundary() -> None:
    problem = place_of("layer1", 1)
    assert isinstance(problem, Problem)
    assert problem.message == "expected embed, final or final_normed, got 'layer1'"


@pytest.mark.parametrize(
    ("name", "hint"), [("layer0", "`embed`"), ("layer9", "`final`"), ("layer9", "`final_normed`")]
)
def test_a_near_miss_is_told_the_right_name(name: str, hint: str) -> None:
    problem = place_of(name, 9)
    assert isinstance(problem, Problem)
    assert hint in (problem.repair or "")


@pytest.mark.parametrize(
    ("boundary", "norm", "message"),
    [
        pytest.param(-1, "pre_norm", "expected a boundary between 0 and 9, got -1", id="negative"),
        pytest.param(10, "pre_norm", "expected a boundary between 0 and 9, got 10", id="beyond"),
        pytest.param(
            8, "post_norm", "only boundary 9 has a post-norm state, got boundary 8", id="inner-norm"
        ),
        pytest.param(
            0, "post_norm", "only boundary 9 has a post-norm state, got boundary 0", id="embed-norm"
        ),
    ],
)
def test_a_place_that_the_model_lacks_has_no_name(boundary: int, norm: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        name_of(boundary, 9, norm)  # type: ignore[arg-type]
