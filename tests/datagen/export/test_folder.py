"""The folder of an export: there whole or not at all, gone on with, never written over, told by its place."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from datagen.adapters.exports.format import PlannedFile, Source
from datagen.adapters.exports.speculators_files import SpeculatorsFormat
from datagen.commands.export import command
from datagen.errors import ConfigError, ExportError, SpaceError
from datagen.export import exporting, file_writing
from datagen.export import folder as export_folder
from datagen.export.exporting import Asked, plan_export, run_export
from datagen.export.listed_files import SUMS, sha256_of
from datagen.store.errors import CorruptError
from schemas.command import guarded
from schemas.records import SplitRule
from tests.datagen.adapters.exports.builders import LENGTHS, make_dataset, open_dataset
from tests.datagen.export.asking import asked, listed
from tests.full_disk import no_file_larger_than


class Stopping(SpeculatorsFormat):
    """Fails at a file, half of which is written by then."""

    def __init__(self, path: str, error: BaseException) -> None:
        self.path, self.error = path, error

    def pieces(self, file: PlannedFile, source: Source) -> Iterator[memoryview | bytes]:
        for piece in super().pieces(file, source):
            yield piece
            if file.path == self.path:
                raise self.error


def stopped(dataset: str, tmp_path: Path, error: BaseException) -> set[str]:
    """Export until an error half-way, and return what was whole by then."""
    plan = plan_export(asked(dataset, tmp_path))
    broken = Stopping("hidden_states/hs_5.safetensors", error)
    with pytest.raises(type(error)):
        run_export(type(plan)(**{**vars(plan), "format": broken}), workers=1)
    assert not (tmp_path / "out").exists()
    return set(listed(tmp_path / ".out.partial"))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), CorruptError("damaged")], ids=["Ctrl-C", "damage"])
def test_what_was_stopped_is_gone_on_with_and_ends_as_if_it_had_not_been(
    dataset: str, tmp_path: Path, error: BaseException
) -> None:
    whole = stopped(dataset, tmp_path, error)
    assert 0 < len(whole) < len(LENGTHS)
    kept = {path: (tmp_path / ".out.partial" / path).stat().st_mtime_ns for path in whole}
    written = run_export(plan_export(asked(dataset, tmp_path)), workers=2)
    assert written.n_kept == len(whole)
    assert {path: (written.path / path).stat().st_mtime_ns for path in whole} == kept
    (tmp_path / "again").mkdir()
    other = run_export(plan_export(Asked(dataset, "speculators", tmp_path / "again" / "out")), workers=2)
    assert listed(other.path) == listed(written.path)


def test_what_changed_meanwhile_or_was_torn_is_written_anew(dataset: str, tmp_path: Path) -> None:
    changed, *_ = sorted(stopped(dataset, tmp_path, KeyboardInterrupt()))
    partial = tmp_path / ".out.partial"
    data = bytearray((partial / changed).read_bytes())
    data[-1] ^= 1
    (partial / changed).write_bytes(data)
    with open(partial / SUMS, "a") as journal:
        journal.write("0" * 64 + "  hidden_states/hs_5.saf")
    written = run_export(plan_export(asked(dataset, tmp_path)), workers=1)
    assert sha256_of(written.path / changed) == listed(written.path)[changed]
    assert "hidden_states/hs_5.saf" not in listed(written.path)
    assert bytes(data) != (written.path / changed).read_bytes()


def test_an_export_that_is_there_is_left_as_it_is(dataset: str, tmp_path: Path) -> None:
    run_export(plan_export(asked(dataset, tmp_path)), workers=1)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    assert run_export(plan_export(asked(dataset, tmp_path)), workers=1).was_there
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before


def flipped(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def test_what_is_there_and_damaged_is_named_file_by_file(dataset: str, tmp_path: Path) -> None:
    out = run_export(plan_export(asked(dataset, tmp_path)), workers=1).path
    sums = listed(out)
    gone, cut, changed = (out / "hidden_states" / f"hs_{row}.safetensors" for row in (1, 4, 7))
    gone.unlink()
    cut.write_bytes(cut.read_bytes()[:-3])
    flipped(changed)
    flipped(out / "strata_card.json")
    with pytest.raises(ExportError, match="is damaged") as error:
        run_export(plan_export(asked(dataset, tmp_path)), workers=2)
    told = {problem.where: problem.message for problem in error.value.problems}
    expected = {str(path): sums[str(path.relative_to(out))] for path in (gone, cut, changed)}
    assert told.keys() == {*expected, str(out / "strata_card.json")}
    for path, sha256 in expected.items():
        got = sha256_of(Path(path)) if Path(path) != gone else "none"
        assert told[path] == f"expected sha256 {sha256}, got {got}"
    assert "rename the folder to .out.partial" in str(error.value)
    out.rename(tmp_path / ".out.partial")
    mended = run_export(plan_export(asked(dataset, tmp_path)), workers=2)
    assert (mended.n_kept, listed(mended.path)) == (len(LENGTHS) - 3, sums)
    assert run_export(plan_export(asked(dataset, tmp_path)), workers=2).was_there


@pytest.mark.parametrize("line", ["hidden_states/hs_3.safetensors", "strata_export.json", None])
def test_a_list_that_is_gone_or_says_less_is_no_proof(dataset: str, tmp_path: Path, line: str | None) -> None:
    out = run_export(plan_export(asked(dataset, tmp_path)), workers=1).path
    lines = (out / SUMS).read_text().splitlines(keepends=True)
    kept = [one for one in lines if line is not None and f"  {line}" not in one]
    (out / SUMS).write_text("".join(kept))
    with pytest.raises(ExportError, match=f"expected a line of {line or 'hidden_states/hs_0.safetensors'}"):
        run_export(plan_export(asked(dataset, tmp_path)), workers=1)


def test_another_export_is_never_written_over_nor_gone_on_with(dataset: str, tmp_path: Path) -> None:
    stopped(dataset, tmp_path, KeyboardInterrupt())
    other = asked(dataset, tmp_path, fc=("embed", "layer4"))
    with pytest.raises(ConfigError, match="what is left of this very export, got another one's"):
        run_export(plan_export(other), workers=1)
    run_export(plan_export(asked(dataset, tmp_path)), workers=1)
    with pytest.raises(ConfigError, match="got another export"):
        run_export(plan_export(other), workers=1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    with pytest.raises(ConfigError, match="got other files"):
        run_export(plan_export(Asked(dataset, "speculators", tmp_path / "mine")), workers=1)


def test_two_at_once_are_one(dataset: str, tmp_path: Path) -> None:
    plan = plan_export(asked(dataset, tmp_path))
    seen: list[str] = []

    def meanwhile(_done: int, _total: int) -> None:
        with pytest.raises(ConfigError, match=r"this name at work, got one \(wait for it"):
            run_export(plan, workers=1)
        seen.append("refused")

    run_export(plan, 1, meanwhile)
    assert seen


@pytest.mark.parametrize(
    ("file_format", "file"),
    [
        ("speculators", "d2t.npy"),
        ("speculators-v1", "d2t.npy"),
        ("specforge", "vocab_mapping/vocab_mapping.pt"),
        ("modelopt", "d2t.pt"),
    ],
)
def test_a_small_file_that_finds_no_room_is_named_and_what_is_whole_stays(
    tmp_path: Path, file_format: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = make_dataset(tmp_path, ("layer2", "layer4", "layer5", "final_normed", "final"), (3, 4, 5))
    words = ["--dataset", dataset, "--format", file_format, "--out", str(tmp_path / "out")]
    words += ["--draft-vocab-size", "900", "--fc", "layer2,layer4,layer5"]
    with no_file_larger_than(7000):
        assert guarded(command, words) == 2
    told = capsys.readouterr().err
    partial = tmp_path / ".out.partial"
    assert f"cannot write {partial / file}" in told or f"cannot write {partial}" in told
    assert "file too large" in told
    assert f"3 of 3 files are whole in {partial}; the same command goes on" in told
    assert not (tmp_path / "out").exists()
    assert command(words) == 0
    assert "3 of them from before" in capsys.readouterr().out


def test_small_files_are_reckoned_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = make_dataset(tmp_path)
    large = sum(file.size_bytes for file in plan_export(asked(dataset, tmp_path)).files)
    plan = plan_export(asked(dataset, tmp_path, draft_vocab_size=1000))
    assert plan.size_bytes > large + 8 * 1000 + 1000
    blocks = sum(-(-file.size_bytes // 4096) * 4096 for file in plan.files)
    monkeypatch.setattr(export_folder, "free_bytes", lambda _path: blocks + 8 * 1000)
    with pytest.raises(SpaceError, match="there is no room for the export"):
        run_export(plan, workers=1)
    assert not (tmp_path / ".out.partial").exists()


def dry(dataset: str, out: Path) -> tuple[int, int]:
    """Return how a dry run ends, and the command itself."""
    words = ["--dataset", dataset, "--format", "speculators", "--out", str(out)]
    return guarded(command, [*words, "--dry-run"]), guarded(command, words)


def test_a_dry_run_looks_at_the_place(
    dataset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    assert dry(dataset, tmp_path / "mine") == (2, 2)
    assert capsys.readouterr().err.count("expected no folder, or this very export, got other files") == 2
    assert dry(dataset, tmp_path / "mine" / "thesis.txt" / "out") == (2, 2)
    assert capsys.readouterr().err.count("expected a folder, got a file") == 2
    stopped(dataset, tmp_path, KeyboardInterrupt())
    other = [
        "--dataset",
        dataset,
        "--format",
        "speculators",
        "--out",
        str(tmp_path / "out"),
        "--fc",
        "layer4",
    ]
    assert guarded(command, [*other, "--dry-run"]) == 2
    with monkeypatch.context() as full:
        full.setattr(export_folder, "free_bytes", lambda _path: 1000)
        assert dry(dataset, tmp_path / "none") == (2, 2)
    assert not (tmp_path / ".none.partial").exists()


def test_a_place_that_cannot_be_made_is_named(
    dataset: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_folder, "free_bytes", lambda _path: 2**40)
    words = ["--dataset", dataset, "--format", "speculators", "--out", "/proc/strata/out"]
    assert guarded(command, words) == 2
    assert "cannot write /proc/strata" in capsys.readouterr().err


def test_ctrl_c_says_what_is_whole_and_that_the_same_command_goes_on(
    dataset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Stopping("hidden_states/hs_5.safetensors", KeyboardInterrupt())
    words = [
        "--dataset",
        dataset,
        "--format",
        "speculators",
        "--out",
        str(tmp_path / "out"),
        "--workers",
        "1",
    ]
    with monkeypatch.context() as now:
        now.setitem(exporting.FORMATS, "speculators", broken)
        assert guarded(command, words) == 130
    told = capsys.readouterr().err
    n_whole = len(listed(tmp_path / ".out.partial"))
    assert 0 < n_whole < len(LENGTHS)
    assert f"{n_whole} of {len(LENGTHS)} files are whole in {tmp_path}/.out.partial; the same command" in told
    assert told.endswith("strata: stopped\n")
    assert guarded(command, words) == 0


def test_a_place_behind_a_link_is_written_where_it_points(dataset: str, tmp_path: Path) -> None:
    """Beside a link may be another disk, and no folder can be put in the place of one."""
    (tmp_path / "disk" / "empty").mkdir(parents=True)
    (tmp_path / "out").symlink_to(tmp_path / "disk" / "empty")
    (tmp_path / "later").symlink_to(tmp_path / "disk" / "none")
    for link in ("out", "later"):
        written = run_export(plan_export(Asked(dataset, "speculators", tmp_path / link)), workers=1)
        assert written.path == (tmp_path / link).resolve()
        assert (tmp_path / link).is_symlink()
        assert (tmp_path / link / SUMS).is_file()
    assert not list(tmp_path.glob(".*"))


def test_a_folder_that_cannot_be_replaced_is_refused_before_anything_is_written(
    dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    plan = plan_export(asked(dataset, tmp_path))
    with monkeypatch.context() as inside:
        inside.chdir(tmp_path / "out")
        with pytest.raises(ConfigError, match="got the one that you are in"):
            run_export(plan, workers=1)
    with monkeypatch.context() as mounted:
        mounted.setattr(Path, "is_mount", lambda path: path.name == "out")
        with pytest.raises(ConfigError, match="got one where a disk is mounted"):
            run_export(plan, workers=1)
    assert not (tmp_path / ".out.partial").exists()
    assert run_export(plan, workers=1).n_files


def test_a_place_among_the_files_of_the_dataset_is_refused(dataset: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(dataset)
    for out in (Path(dataset), Path(dataset) / "parts" / "mine", tmp_path / "link" / "mine"):
        with pytest.raises(ConfigError, match="expected a place outside of the dataset"):
            plan_export(Asked(dataset, "speculators", out))
    assert plan_export(Asked(dataset, "speculators", Path(f"{dataset}-out"))).files


def test_with_a_newer_version_it_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = make_dataset(tmp_path)
    words = ["--format", "speculators", "--out", str(tmp_path / "out"), "--workers", "1", "--dataset"]
    with monkeypatch.context() as now:
        broken = Stopping("hidden_states/hs_5.safetensors", KeyboardInterrupt())
        now.setitem(exporting.FORMATS, "speculators", broken)
        assert guarded(command, [*words, dataset]) == 130
    pinned = f"--dataset {dataset}@1"
    assert f"goes on (with {pinned} once there is a newer version)" in capsys.readouterr().err
    rule = SplitRule(name="holdout", seed=3, fractions=(("train", 0.5), ("validation", 0.5)))
    open_dataset(dataset).split([rule])
    assert guarded(command, [*words, dataset]) == 2
    told = capsys.readouterr().err
    assert "card.dataset.version: expected 2, got 1 (say the version, --dataset .../states@1)" in told
    assert guarded(command, [*words, f"{dataset}@1"]) == 0
    assert " of them from before" in capsys.readouterr().out


class Watched(SpeculatorsFormat):
    """Tells after which pieces of a file the next one was asked for."""

    def __init__(self, on_piece: Callable[[str, int], None]) -> None:
        self.on_piece = on_piece

    def pieces(self, file: PlannedFile, source: Source) -> Iterator[memoryview | bytes]:
        for number, piece in enumerate(super().pieces(file, source)):
            yield piece
            self.on_piece(file.path, number)


def test_bytes_are_told_while_a_file_is_written(dataset: str, tmp_path: Path) -> None:
    """A shard may have gigabytes."""
    plan = plan_export(asked(dataset, tmp_path))
    told = threading.Event()
    told_inside: list[bool] = []

    def hold(_path: str, number: int) -> None:
        if number == 0 and not told_inside:
            told_inside.append(told.wait(60))

    shown: list[int] = []

    def show(done: int, total: int) -> None:
        shown.append(done)
        if 0 < done < min(file.size_bytes for file in plan.files):
            told.set()
        assert total == sum(file.size_bytes for file in plan.files)

    run_export(replace(plan, format=Watched(hold)), 1, show)
    assert told_inside == [True]
    assert shown == sorted(shown)
    assert shown[-1] == sum(file.size_bytes for file in plan.files)


def test_a_failure_ends_the_files_in_hand_at_their_next_piece(
    dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does Ctrl-C: who waits for a shard of gigabytes presses it twice."""
    plan = plan_export(asked(dataset, tmp_path))
    two_at_work, ended = threading.Event(), threading.Event()
    turns = count()
    beyond: list[str] = []
    end = file_writing._Work.end

    def end_and_tell(work: file_writing._Work) -> None:
        end(work)
        ended.set()

    monkeypatch.setattr(file_writing._Work, "end", end_and_tell)

    def fail_in_the_first(path: str, number: int) -> None:
        if number:
            beyond.append(path)
        elif next(turns):
            two_at_work.set()
            assert ended.wait(60)
        else:
            assert two_at_work.wait(60)
            raise CorruptError("damaged")

    with pytest.raises(CorruptError, match="damaged"):
        run_export(replace(plan, format=Watched(fail_in_the_first)), 2)
    assert beyond == []


def test_what_else_lies_in_a_folder_that_is_gone_on_with_is_named(dataset: str, tmp_path: Path) -> None:
    """A trainer would take it for a sample."""
    stopped(dataset, tmp_path, KeyboardInterrupt())
    stranger = tmp_path / ".out.partial" / "hidden_states" / "hs_99.safetensors"
    stranger.write_bytes(b"of an older plan")
    with open(tmp_path / ".out.partial" / SUMS, "a") as journal:
        journal.write(f"{sha256_of(stranger)}  hidden_states/hs_99.safetensors\n")
    with pytest.raises(ConfigError, match=r"only files of this export, got hidden_states/hs_99\.safetensors"):
        run_export(plan_export(asked(dataset, tmp_path)), workers=1)
    assert not (tmp_path / "out").exists()
    stranger.unlink()
    written = run_export(plan_export(asked(dataset, tmp_path)), workers=1)
    assert written.n_kept == len(LENGTHS)
    assert "hidden_states/hs_99.safetensors" not in listed(written.path)
