"""A consumer's own format, value by value; `tests/oracle/test_forms.py` compares with the consumers' code."""

from typing import Any

import pytest
import torch

from schemas.wiring import Wiring as WholeWiring
from service.client.asked import Wiring
from service.client.errors import RefusedError, StreamError
from service.client.stream.fetched import Fetched
from service.client.stream.forms import KNOWN
from service.client.stream.memory import Memory
from tests.builders import tiny_schema
from tests.service.client.memory_source import source_of
from tests.service.client.stream.asking import FC, SPECFORGE, WIRING, stream_of

FORMS = {form.consumer: form for form in KNOWN}


def numbered(lengths: tuple[int, ...] = (3, 1, 2)) -> Fetched:
    """Return samples whose values say where they stand: tensor in the hundreds, row in the ones."""
    offsets = (0, *torch.tensor(lengths).cumsum(0).tolist())
    names = (*FC, "final", "final_normed")
    rows = torch.arange(float(offsets[-1]))
    return Fetched(
        sample_ids=tuple("abc"[: len(lengths)]),
        offsets=offsets,
        tensors={name: (rows + 100 * (at + 1))[:, None] for at, name in enumerate(names)},
        input_ids=torch.arange(offsets[-1]) + 10,
        loss_mask=torch.ones(offsets[-1]).bool(),
    )


def wiring_of(asked: Wiring) -> WholeWiring:
    return stream_of(source_of([2]), asked).wiring


def test_speculators_row_pairs_state_i_with_token_target_and_mask_of_i_plus_1() -> None:
    form = FORMS["speculators"]
    row = form.collate(form.keys, numbered(), wiring_of(WIRING), 8, Memory())
    pad = [0] * 5
    assert row["hidden_states"][0, :, 0].tolist() == [100, 101, 104, *pad]
    assert row["hidden_states"][0, 0].tolist() == [100, 200, 300]
    assert row["verifier_last_hidden_states"][0, :, 0].tolist() == [401, 402, 405, *pad]
    assert row["input_ids"].tolist() == [[11, 12, 15, *pad]]
    assert row["loss_mask"].tolist() == [[1, 1, 1, *pad]]
    assert row["position_ids"].tolist() == [[1, 2, 1, *pad]]
    assert row["document_ids"].tolist() == [[0, 0, 2, -1, -1, -1, -1, -1]]
    assert row["error_records"] == 0


def test_speculators_samples_are_unshifted() -> None:
    form = FORMS["speculators"]
    first = form.samples(form.keys, numbered(), wiring_of(WIRING))[0]
    assert first["hidden_states"].tolist() == [[100, 200, 300], [101, 201, 301], [102, 202, 302]]
    assert first["verifier_last_hidden_states"].flatten().tolist() == [400, 401, 402]
    assert (first["input_ids"].tolist(), first["position_ids"].tolist()) == ([10, 11, 12], [0, 1, 2])
    assert first["lengths"].tolist() == [3]


def test_specforge_rows_are_unshifted_and_end_without_a_loss() -> None:
    form = FORMS["specforge"]
    rows = form.collate(form.keys, numbered(), wiring_of(SPECFORGE), 0, Memory())
    assert rows["hidden_state"].shape == (3, 3, 3)
    assert rows["hidden_state"][:, :, 0].tolist() == [[100, 101, 102], [103, 0, 0], [104, 105, 0]]
    assert rows["target"][:, :, 0].tolist() == [[500, 501, 502], [503, 0, 0], [504, 505, 0]]
    assert rows["input_ids"].tolist() == [[10, 11, 12], [13, 0, 0], [14, 15, 0]]
    assert rows["loss_mask"].tolist() == [[1, 1, 0], [0, 0, 0], [1, 0, 0]]
    assert rows["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 0]]


@pytest.mark.parametrize("format", ["consumer", "consumer_samples"])
@pytest.mark.parametrize("wiring", [WIRING, SPECFORGE], ids=["speculators", "specforge"])
def test_a_stream_yields_the_form_with_where_it_stands(format: str, wiring: Wiring) -> None:
    source = source_of([5, 3, 8, 2, 9, 1, 7])
    plain = list(stream_of(source, wiring))
    got = list(stream_of(source, wiring, format=format))
    assert [(batch.state, batch.sample_ids) for batch in got] == [
        (batch.state, batch.sample_ids) for batch in plain
    ]
    if format == "consumer_samples":
        assert [len(batch.inputs) for batch in got] == [len(batch.sample_ids) for batch in plain]


def test_memory_that_was_used_before_leaves_nothing_in_the_padding() -> None:
    source = source_of([16, 3, 16, 3, 16, 5, 2, 2])
    for wiring, keys in ((WIRING, ("hidden_states",)), (SPECFORGE, ("hidden_state", "target"))):
        for batch in stream_of(source, wiring, format="consumer", epochs=4, prefetch=0):
            mask = batch.inputs.get("attention_mask")
            empty = batch.inputs["document_ids"] == -1 if mask is None else mask == 0
            assert not any(batch.inputs[key][empty].any() for key in keys)
            del batch


def refused(wiring: Any, **options: Any) -> StreamError:
    with pytest.raises(StreamError) as error:
        stream_of(source_of([3, 4]), wiring, **{"format": "consumer", **options})
    return error.value


def test_a_consumer_without_a_known_format_is_told_to_go_by_names() -> None:
    wiring = wiring_of(WIRING).model_copy(update={"consumer": "mine", "version": None})
    (problem,) = refused(wiring).problems
    assert "speculators (>=0.9,<=0.9.0)" in problem.message
    assert problem.repair is not None
    assert 'format="named"' in problem.repair
    assert refused(Wiring("speculators", FC, "final", "0.5.0")).problems[0].where == "format"


def test_options_that_a_form_does_not_go_with_are_named() -> None:
    assert [problem.where for problem in refused(WIRING, samples_per_batch=2, layout="padded").problems] == [
        "tokens_per_batch",
        "layout",
    ]
    moved = wiring_of(WIRING).model_copy(update={"token_shift": "producer"})
    assert [problem.where for problem in refused(moved).problems] == ["wiring.token_shift"]


def test_specforge_without_the_normed_state_is_refused_with_what_to_do() -> None:
    source = source_of([3], tiny_schema((*FC, "final")))
    with pytest.raises(RefusedError) as error:
        stream_of(source, SPECFORGE, format="consumer")
    (problem,) = [each for each in error.value.problems if each.severity == "error"]
    assert (problem.role, problem.expected) == ("target", "final_normed")
    assert problem.repair
