"""A wiring of one's own in TOML, named outright or declared like the known ones; a wrong file is problems."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.consumers.own import read_user_wiring
from schemas.consumers.resolve import Shape

KIMI = Shape(model_type="kimi_k25", n_layers=61)
OUTRIGHT = """
[wiring]
name = "mine"
kind = "trainer"
fc = ["layer3", "layer31", "layer59"]
token_shift = "consumer"
mask_alignment = "next"
position_start = 0
[wiring.target]
tensor = "final"
applies_norm = true
"""
DECLARED = """
[[consumer]]
name = "mine"
kind = "trainer"
title = "my trainer"
source = "train.py"
versions = "<2"
default_ids = ["1", "n//2-1", "n-4"]
target = { tensor = "final", applies_norm = true }
[[consumer.ids]]
models = ["*"]
rule = "after_layer"
source = "train.py"
"""
SERVER = """
[[consumer]]
name = "mine"
kind = "server"
title = "my server"
source = "serve.py"
reads = ["layers"]
order = "ascending"
[[consumer.ids]]
models = ["*"]
rule = "as_written"
source = "serve.py"
[given.draft_config]
layers = [31, 3, 59]
"""


def test_tensors_named_outright() -> None:
    resolution = read_user_wiring(OUTRIGHT, KIMI)
    assert resolution.problems == ()
    wiring = resolution.wiring
    assert wiring is not None
    assert (wiring.consumer, wiring.boundaries, wiring.n_layers) == ("mine", (3, 31, 59), 61)
    assert wiring.target is not None
    assert wiring.target.applies_norm
    assert (wiring.token_shift, wiring.mask_alignment, wiring.position_start) == ("consumer", "next", 0)


def test_a_declared_consumer_is_resolved_like_the_known_ones() -> None:
    resolution = read_user_wiring(DECLARED, KIMI)
    assert resolution.problems == ()
    assert resolution.wiring is not None
    assert resolution.wiring.boundaries == (2, 30, 58)
    told = read_user_wiring(DECLARED + "[given]\nids = [2, 30, 58]\nversion = '1.0'\n", KIMI)
    assert told.wiring is not None
    assert (told.wiring.boundaries, told.version) == ((3, 31, 59), "1.0")


def test_a_declared_server_reads_its_config() -> None:
    resolution = read_user_wiring(SERVER, KIMI)
    assert resolution.wiring is not None
    assert resolution.wiring.boundaries == (3, 31, 59)


WRONG: dict[str, tuple[str, str]] = {
    "no TOML": ("[wiring", "is not TOML"),
    "nothing": ("", "expected [wiring] or [[consumer]], got neither"),
    "a tensor the target has not": (
        OUTRIGHT.replace("layer59", "layer61"),
        "expected a layer between 1 and 60",
    ),
    "a word too many": (OUTRIGHT.replace("fc =", "order = 1\nfc ="), "expected no such field"),
    "no inputs": (OUTRIGHT.replace('"layer3", "layer31", "layer59"', ""), "expected to have at least 1 item"),
    "no target": (OUTRIGHT.split("[wiring.target]")[0], "expected a target"),
    "a position in quotes": (OUTRIGHT.replace("= 0", '= "0"'), "got '0'"),
    "no known rule": (DECLARED.replace("after_layer", "sometimes"), "got 'sometimes'"),
    "a wrong formula": (DECLARED.replace("n-4", "m-4"), "expected a formula as n//2-1, got 'm-4'"),
    "a wrong range": (DECLARED.replace('"<2"', '"~2"'), "expected a range"),
    "no target of a trainer": (
        DECLARED.replace("target =", "#"),
        "expected one, since a trainer has a target",
    ),
    "one table": (DECLARED.replace("[[consumer]]", "[consumer]"), "expected [[consumer]] tables"),
    "both": (OUTRIGHT + DECLARED, "expected [wiring] alone"),
    "two consumers": (DECLARED + DECLARED.replace('"mine"', '"other"'), "expected one consumer"),
    "too long": ("#" * 1_000_001, "expected at most"),
    "a huge number": (OUTRIGHT.replace("= 0", "= " + "9" * 5000), "is not TOML"),
    "a huge hexadecimal number": (OUTRIGHT.replace("= 0", "= 0x" + "f" * 5000), "too long to show"),
}


@pytest.mark.parametrize("row", WRONG.values(), ids=WRONG)
def test_a_wrong_file_says_what_is_wrong(row: tuple[str, str]) -> None:
    text, said = row
    resolution = read_user_wiring(text, KIMI)
    assert resolution.wiring is None
    assert any(said in str(problem) for problem in resolution.problems), resolution.problems


@settings(deadline=None, max_examples=60)
@given(
    text=st.text(max_size=40),
    at=st.integers(0, 400),
    cut=st.integers(0, 30),
    whole=st.sampled_from([OUTRIGHT, DECLARED, SERVER]),
)
def test_no_file_raises(text: str, at: int, cut: int, whole: str) -> None:
    resolution = read_user_wiring(whole[:at] + text + whole[at + cut :], KIMI)
    assert resolution.wiring is not None or resolution.problems
