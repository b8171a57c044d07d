"""The wiring that a trainer is asked to take: named tensors become its own numbers, whatever it counts."""

import pytest

from schemas.consumers.resolution import Shape
from schemas.consumers.resolve import names, resolve_trainer
from schemas.consumers.write import plain_ids

LLAMA = Shape(model_type="llama", n_layers=32)


@pytest.mark.parametrize("trainer", names("trainer"))
def test_ids_mean_the_boundaries_that_were_asked_for(trainer: str) -> None:
    boundaries = (3, 17, 30)
    taken = resolve_trainer(trainer, None, LLAMA, ids=plain_ids(trainer, None, LLAMA, boundaries)).wiring
    if taken is not None:
        assert taken.boundaries == boundaries


@pytest.mark.parametrize(("trainer", "ids"), [("deepspec", (-1, 2, 31)), ("automodel", (-1, 2, 31))])
def test_an_embedding_is_the_layer_before_the_first(trainer: str, ids: tuple[int, ...]) -> None:
    assert plain_ids(trainer, None, LLAMA, (0, 3, 32)) == ids
