"""A dataset's samples captured again, an audit set in place of a model, and what the commands say of both."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from datagen.commands import identify as identify_command
from datagen.commands import verify as verify_command
from datagen.engines.settings import EngineSettings
from datagen.errors import ConfigError
from datagen.planning.audit import audit_schema
from datagen.replay.identify import identify
from datagen.replay.identify_sources import AuditSource, BothSources, ModelSource
from datagen.replay.stored_states import open_target, verify_states
from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from datagen.store.sample_data import SampleData
from schemas.command import guarded
from schemas.sample import prompt_id, sample_id
from schemas.schema import Schema
from tests.datagen.engines import tiny_models
from tests.datagen.replay.foreign_builders import listed, stacked
from tests.datagen.replay.test_identify import names_of, states_of, token_ids
from tests.datagen.store.real_parts import commit_samples

NAMES = ("layer1", "layer2", "final")
Rows = NDArray[np.generic]
Change = Callable[[list[dict[str, Rows]]], None]


def nothing(_: list[dict[str, Rows]]) -> None:
    """Leave the samples as the target made them."""


def make(
    root: Path,
    name: str,
    source: ModelSource,
    ids: Sequence[list[int]],
    names: Sequence[str] = NAMES,
    change: Change = nothing,
) -> None:
    """Make a dataset of the target's states, `change`d before they are written."""
    schema = Schema.declare(source.target, names, source.dtype)
    if len(names) > len(NAMES):
        schema = audit_schema(source.target, source.dtype)
    states = [{key: states_of(source, tokens)[key].copy() for key in schema.names} for tokens in ids]
    change(states)
    dataset = Dataset.create(open_door(root), name, schema, exist_ok=False)
    samples = [
        SampleData(
            sample_id=sample_id(tokens),
            prompt_id=prompt_id(tokens, {"mode": "test"}),
            conversation_id=f"c{number}",
            source="test",
            tokens={
                column.name: np.asarray(tokens, np.uint8 if column.dtype == "uint8" else np.int32) % 2
                if column.name != "input_ids"
                else np.asarray(tokens, np.int32)
                for column in schema.token_columns
            },
            tensors=held,
            norms={key: np.linalg.norm(rows.astype(np.float32), axis=1) for key, rows in held.items()},
        )
        for number, (tokens, held) in enumerate(zip(ids, states, strict=True))
    ]
    commit_samples(dataset, schema, samples)


IDS = [token_ids(length, seed) for seed, length in enumerate((30, 41, 25))]


def swapped(states: list[dict[str, Rows]]) -> None:
    for held in states:
        held["layer1"], held["layer2"] = held["layer2"], held["layer1"]


def one_earlier(states: list[dict[str, Rows]]) -> None:
    for held in states:
        held["final"] = held["layer2"].copy()


def stale(states: list[dict[str, Rows]]) -> None:
    states[1]["layer1"] = np.roll(states[1]["layer1"], 1, axis=0)


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (nothing, set()),
        (swapped, {"misnamed"}),
        (one_earlier, {"misnamed", "head"}),
        (stale, {"shifted"}),
    ],
)
def test_verify_captures_again_and_compares_by_name(
    change: Change,
    kinds: set[str],
    tmp_path: Path,
    tiny_target: Path,
    in_bfloat16: ModelSource,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make(tmp_path, "made", in_bfloat16, IDS, change=change)
    words = [f"{tmp_path}/made", "--audit", "9", "--target", str(tiny_target)]
    assert guarded(verify_command.command, [*words, "--json"]) == (1 if kinds else 0)
    told = json.loads(capsys.readouterr().out)
    assert told["ok"]
    states = told["states"]
    assert (states["samples"], states["tokens"]) == (3, 96)
    assert {problem["kind"] for problem in states["problems"] if problem["severity"] == "error"} == kinds
    assert bool(kinds) == (not states["ok"])
    assert states["head"]["positions"] == 96


def test_verify_in_words(
    tmp_path: Path, tiny_target: Path, in_bfloat16: ModelSource, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, "made", in_bfloat16, IDS, change=one_earlier)
    words = [f"{tmp_path}/made", "--audit", "2", "--target", str(tiny_target)]
    assert guarded(verify_command.command, words) == 1
    told = capsys.readouterr().out
    assert "made holds" in told
    assert "the states are not what they are called" in told
    assert "final: expected final, got the states of layer2 (0.00% off)" in told
    assert "layer1: 0.00% off, p99 0.00% (worst sample); the nearest other" in told
    assert guarded(verify_command.command, [f"{tmp_path}/made", "--audit", "2"]) == 2
    assert "expected --target MODEL with it" in capsys.readouterr().err


def test_another_model_is_refused_with_every_difference(tmp_path: Path, in_bfloat16: ModelSource) -> None:
    make(tmp_path, "made", in_bfloat16, IDS)
    other = tiny_models.save("llama", tmp_path / "other", seed=1)
    schema = Dataset.open(open_door(tmp_path), "made").snapshot().schema
    with pytest.raises(ConfigError, match="not the target of the dataset") as error:
        open_target(schema, str(other), "cpu")
    assert [problem.where for problem in error.value.problems] == ["target.weights.sha256"]


def test_states_in_another_attention_still_verify(
    tmp_path: Path, tiny_target: Path, in_bfloat16: ModelSource
) -> None:
    settings = EngineSettings(
        model=str(tiny_target), dtype="bfloat16", device="cpu", attn_implementation="eager"
    )
    make(tmp_path, "made", ModelSource.of(settings), IDS)
    snapshot = Dataset.open(open_door(tmp_path), "made").snapshot()
    report = verify_states(snapshot, 3, open_target(snapshot.schema, str(tiny_target), "cpu"))
    assert report.ok, report.problems
    assert report.head is not None
    assert report.head.share is not None
    assert [line.name for line in report.lines] == list(NAMES)


@pytest.fixture
def audit(tmp_path: Path, in_float32: ModelSource) -> AuditSource:
    names = ("embed", "layer1", "layer2", "final", "final_normed")
    make(tmp_path, "made.audit", in_float32, [ids[:24] for ids in IDS], names)
    return AuditSource(Dataset.open(open_door(tmp_path), "made.audit").snapshot(), "made.audit")


def test_an_audit_set_names_the_beginnings_that_it_has(
    tmp_path: Path, audit: AuditSource, in_float32: ModelSource
) -> None:
    files = [
        stacked(tmp_path / f"hs_{n}", ids, states_of(in_float32, ids), NAMES) for n, ids in enumerate(IDS)
    ]
    found = identify(files, audit)
    assert names_of(found) == list(NAMES) * 3
    assert not found.errors
    assert [(run.kind, run.n_rows) for run in found.slots[0].runs] == [("right", 24), ("unseen", 6)]


def test_rows_that_an_audit_set_lacks_are_no_all_clear(
    tmp_path: Path, audit: AuditSource, in_float32: ModelSource, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last rows of every slot are noise, and nothing is there to see it by."""
    states = states_of(in_float32, IDS[0])
    for rows in states.values():
        rows[26:] = np.random.default_rng(1).standard_normal(rows[26:].shape)
    file = stacked(tmp_path / "hs_0", IDS[0], states, NAMES)
    (found, *_) = identify([file], audit).slots
    (note,) = found.problems
    assert note.severity == "note"
    assert "rows 24 to 29: not compared" in note.message
    assert "--target" in (note.repair or "")
    assert guarded(identify_command.command, [str(file), "--audit", f"{tmp_path}/made.audit"]) == 0
    out = capsys.readouterr().out
    assert "of 24 of 30 rows each slot is one tensor of its own tokens; no other was compared" in out
    assert "rows 24 to 29: not compared" in out
    assert "every slot" not in out


def test_faults_are_told_with_how_many_rows_were_compared(
    tmp_path: Path, audit: AuditSource, in_float32: ModelSource, capsys: pytest.CaptureFixture[str]
) -> None:
    states = states_of(in_float32, IDS[0])
    states["layer1"][3] = 0
    file = stacked(tmp_path / "hs_0", IDS[0], states, NAMES)
    assert guarded(identify_command.command, [str(file), "--audit", f"{tmp_path}/made.audit"]) == 1
    assert "1 problem, in 24 of 30 rows that were compared" in capsys.readouterr().out


@pytest.mark.parametrize(
    "names", [["nosuch.pt"], ["readme.txt"], ["nosuch.pt", "readme.txt", "empty.pt"], ["."]]
)
def test_where_no_file_can_be_read_nothing_is_tried(
    tmp_path: Path, names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the target is loaded, which is not there either."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name in set(names) & {"readme.txt", "empty.pt"}:
        (folder / name).write_text("eagle" if name == "readme.txt" else "")
    files = [str(folder / name) for name in names]
    assert guarded(identify_command.command, [*files, "--target", str(tmp_path / "no-model")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "none of the files can be read" in err
    lines = err.strip().splitlines()[1:]
    assert len(lines) == len(names)
    assert all(line.endswith(")") for line in lines), "each with what to do next"


def test_an_audit_set_that_lacks_the_tokens_says_so(
    tmp_path: Path, audit: AuditSource, in_float32: ModelSource
) -> None:
    ids = token_ids(20, 9)
    file = stacked(tmp_path / "hs_0", ids, states_of(in_float32, ids), NAMES)
    (problem,) = identify([file], audit).problems
    assert (
        "expected a sample of made.audit that begins as these 20 tokens do, got 3 samples" in problem.message
    )
    found = identify([file], BothSources(audit, in_float32))
    assert names_of(found) == list(NAMES)


def test_rows_of_an_audit_sample_are_known_by_it(
    tmp_path: Path, audit: AuditSource, in_float32: ModelSource
) -> None:
    ids = token_ids(24, 9)
    states = states_of(in_float32, ids)
    states["layer1"][5:10] = states_of(in_float32, IDS[0])["layer1"][5:10]
    file = listed(tmp_path / "data_0", ids, states, NAMES)
    (problem,) = identify([file], BothSources(audit, in_float32)).errors
    assert "got those of audit sample" in problem.message


def test_a_dataset_is_no_audit_set(tmp_path: Path, in_float32: ModelSource) -> None:
    make(tmp_path, "made", in_float32, IDS)
    with pytest.raises(ConfigError, match=r"name the companion, made\.audit"):
        identify_command.open_audit(f"{tmp_path}/made")


def test_the_command_in_words_and_as_json(
    tmp_path: Path, tiny_target: Path, in_bfloat16: ModelSource, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [
        stacked(tmp_path / f"hs_{n}", ids, states_of(in_bfloat16, ids), NAMES) for n, ids in enumerate(IDS)
    ]
    assert guarded(identify_command.command, [str(tmp_path), "--target", str(tiny_target)]) == 0
    told = capsys.readouterr().out
    assert "llama in bfloat16, by transformers" in told
    assert "every slot is one tensor of its own tokens" in told
    lines = [line.split()[:7] for line in told.splitlines() if "pre_norm" in line]
    assert lines == [
        ["hidden_states[0]", "bfloat16", "layer1", "pre_norm", "1", "3", "96"],
        ["hidden_states[1]", "bfloat16", "layer2", "pre_norm", "2", "3", "96"],
        ["hidden_states[2]", "bfloat16", "final", "pre_norm", "3", "3", "96"],
    ]
    torch.save({"input_ids": torch.tensor(IDS[0]), "hidden_states": [torch.ones(30, 48)]}, tmp_path / "x.pt")
    words = [str(files[0]), str(tmp_path / "x.pt"), "--target", str(tiny_target), "--json"]
    assert guarded(identify_command.command, words) == 1
    data = json.loads(capsys.readouterr().out)
    assert not data["ok"]
    assert data["slots"][0]["found"]["boundary"] == 1
    assert data["slots"][3]["found"] is None
    assert data["slots"][3]["problems"][0]["kind"] == "nothing"


def test_what_is_wrong_in_many_files_is_said_once(
    tmp_path: Path, tiny_target: Path, in_bfloat16: ModelSource, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, ids in enumerate(IDS):
        stacked(tmp_path / f"hs_{number}", ids, states_of(in_bfloat16, ids), ("layer1", "layer2"))
    assert guarded(identify_command.command, [str(tmp_path), "--target", str(tiny_target)]) == 0
    (note,) = [line for line in capsys.readouterr().out.splitlines() if "note:" in line]
    told = (
        "hidden_states[1]: speculators takes this slot for final, and it is layer2 (and so in 2 more files)"
    )
    assert note.endswith(told)


def test_the_command_without_a_target(
    tmp_path: Path, in_bfloat16: ModelSource, capsys: pytest.CaptureFixture[str]
) -> None:
    file = stacked(tmp_path / "hs_0", IDS[0], states_of(in_bfloat16, IDS[0]), NAMES)
    assert guarded(identify_command.command, [str(file)]) == 0
    told = capsys.readouterr().out
    assert "norms alone tell no tensor's name" in told
    assert "nothing is known of which tensors they are" in told
    assert not any(name in told for name in ("layer1", "layer2", "final"))
