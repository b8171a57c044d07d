"""Files that are cut, pickled, of other shapes or hold NaN: each left out by name, the others brought in."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from datagen.errors import ConfigError, IngestError
from datagen.export.listed_files import SUMS
from datagen.ingest.looking import Looked
from datagen.ingest.plan import IngestPlan, plan_ingest
from datagen.ingest.writing import Ingested, write
from datagen.stopping import Stopping
from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from datagen.store.snapshot import Snapshot
from datagen.store.verify import verify
from tests.datagen.adapters.exports.builders import LENGTHS, NAMES, make_dataset
from tests.datagen.ingest.damages import (
    UNREADABLE,
    WRONG,
    Content,
    change,
    cut,
    empty,
    padded,
    text,
    without_a_mask,
)
from tests.datagen.ingest.ingest_builders import back, export, ingest, unproven


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("exported")
    dataset = make_dataset(root, names=(*NAMES, "layer3", "layer6"))
    export(dataset, "speculators-v1", root / "v1")
    export(dataset, "speculators", root / "now")
    return root


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    """speculators v1: a file a sample, `data_{row}.pt`; to be damaged, so without the list of checksums."""
    return Path(shutil.copytree(exported / "v1", tmp_path / "v1", ignore=shutil.ignore_patterns(SUMS)))


@pytest.fixture
def now(exported: Path, tmp_path: Path) -> Path:
    """speculators' current format; to be damaged."""
    return Path(shutil.copytree(exported / "now", tmp_path / "now"))


def longest(folder: Path) -> Path:
    """Return the file of the longest sample."""
    return max(folder.rglob("data_*.pt"), key=lambda file: file.stat().st_size)


def left_out(plan: IngestPlan, done: Ingested) -> dict[str, str]:
    """Return what was left out and why; all else must be there and whole."""
    snapshot = back(Path(plan.opened.reference.root))
    assert done.outcome == "complete"
    assert len(snapshot) == done.n_samples
    report = verify(Dataset.open(LocalDoor(plan.opened.reference.root), "back"), workers=1)
    assert report.ok, report
    quarantined = {row.source: row for row in snapshot.quarantined()}
    assert quarantined.keys() == {one.listed.name for one in done.refused}
    assert not quarantined.keys() & sources(snapshot)
    return {name: f"{row.reason}: {row.detail}" for name, row in quarantined.items()}


def sources(snapshot: Snapshot) -> set[str]:
    located = [snapshot.location(sample_id) for sample_id in snapshot.sample_ids]
    return {snapshot.part(at).sample(at.row_start, at.n_tokens).source for at in located}


class Damaged(NamedTuple):
    """What came of a folder that has a file of each damage, among as many whole ones."""

    folder: Path
    lengths: dict[str, int]
    found: dict[str, str]
    by_damage: dict[str, str]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    root = tmp_path_factory.mktemp("damaged")
    damages = [*(damage.__name__ for damage in WRONG), *(damage.__name__ for damage in UNREADABLE)]
    dataset = make_dataset(root, ("layer3", "layer5", "layer6", "final"), range(10, 10 + 2 * len(damages)))
    folder = export(dataset, "speculators-v1", root / "v1")
    (folder / SUMS).unlink()
    files = sorted(folder.rglob("data_*.pt"))
    lengths = {file.name: len(torch.load(file, weights_only=True)["input_ids"]) for file in files}
    for file, damage in zip(files, WRONG, strict=False):
        change(file, damage)
    for file, spoil in zip(files[len(WRONG) :], UNREADABLE, strict=False):
        spoil(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        plan, done = ingest(unproven("speculators-v1", [folder], root))
    assert done.n_samples == len(files) - len(damages)
    by_damage = {name: str(file.relative_to(folder)) for file, name in zip(files, damages, strict=False)}
    return Damaged(folder, lengths, left_out(plan, done), by_damage)


@pytest.mark.parametrize("damage", WRONG, ids=lambda damage: damage.__name__)
def test_a_sample_that_is_wrong_is_left_out_by_name(
    damage: Callable[[Content], object], damaged: Damaged
) -> None:
    name = damaged.by_damage[damage.__name__]
    told = WRONG[damage].format(file=damaged.folder / name, n=damaged.lengths[Path(name).name])
    assert damaged.found[name].startswith(told), damaged.found[name]


@pytest.mark.parametrize("damage", UNREADABLE, ids=lambda damage: damage.__name__)
def test_a_file_that_cannot_be_read_is_left_out_and_nothing_in_it_is_run(
    damage: Callable[[Path], None], damaged: Damaged
) -> None:
    name = damaged.by_damage[damage.__name__]
    assert damaged.found[name].startswith(f"unreadable_record: {damaged.folder / name}: expected ")
    assert not (damaged.folder.parent / "surprise").exists()


def test_nothing_is_left_out_but_what_is_damaged(damaged: Damaged) -> None:
    assert damaged.found.keys() == set(damaged.by_damage.values())


def test_a_safetensors_file_that_was_cut_is_left_out(now: Path, tmp_path: Path) -> None:
    files = [now / "hidden_states" / f"hs_{row}.safetensors" for row in (4, 5, 6)]
    for file, damage in zip(files, (cut, empty, text), strict=True):
        damage(file)
    found = left_out(*ingest(unproven("speculators", [now], tmp_path)))
    assert found.keys() == {f"hidden_states/{file.name}" for file in files}
    assert all("expected a whole safetensors file" in told for told in found.values())


def test_pipes_and_broken_links_are_left_out_and_linked_folders_are_looked_into(
    folder: Path, tmp_path: Path
) -> None:
    first, second, third = (folder / f"data_{number}.pt" for number in (2, 5, 8))
    first.unlink()
    os.mkfifo(first)
    second.unlink()
    second.symlink_to(tmp_path / "none")
    (tmp_path / "elsewhere").mkdir()
    shutil.move(third, tmp_path / "elsewhere" / third.name)
    (folder / "more").symlink_to(tmp_path / "elsewhere")
    plan, done = ingest(unproven("speculators-v1", [folder], tmp_path))
    found = left_out(plan, done)
    assert done.n_samples == len(LENGTHS) - 2
    assert found[first.name].startswith(
        f"unreadable_record: {first}: expected a file, got a folder or a pipe"
    )
    assert found[second.name].startswith(f"unreadable_record: {second}: expected a file, got none of this")


def test_files_that_are_gone_are_told_as_gaps(folder: Path, now: Path, tmp_path: Path) -> None:
    for name in ("data_3.pt", "data_4.pt", "data_7.pt"):
        next(folder.rglob(name)).unlink()
    plan, done = ingest(unproven("speculators-v1", [folder], tmp_path))
    assert done.n_samples == len(LENGTHS) - 3
    assert any("expected 0 to 9, got none of number 3 to 4, 7" in problem.message for problem in plan.notes)
    (now / "hidden_states" / "hs_0.safetensors").unlink()
    files = plan_ingest(unproven("speculators", [now], tmp_path / "other"), 2)
    assert any("got none of 1 of 10 rows: 0" in problem.message for problem in files.notes)


def test_the_same_ids_with_another_mask_are_left_out_and_with_the_same_are_one(
    folder: Path, tmp_path: Path
) -> None:
    file = longest(folder)
    shutil.copy(file, file.with_name("data_10.pt"))
    other = file.with_name("data_11.pt")
    shutil.copy(file, other)
    change(other, lambda content: content.update(loss_mask=1 - content["loss_mask"]))
    plan, done = ingest(unproven("speculators-v1", [folder], tmp_path))
    assert plan.looked.n_again == 1
    found = left_out(plan, done)
    assert list(found) == [str(other.relative_to(folder))]
    assert found[str(other.relative_to(folder))].startswith(
        f"mask_conflict: loss_mask: expected the mask of {file.relative_to(folder)}, which has the same token"
    )


def test_a_mask_that_is_not_the_stored_ones_is_left_out_though_it_counts_as_many(
    folder: Path, tmp_path: Path
) -> None:
    ingest(unproven("speculators-v1", [folder], tmp_path))
    file = longest(folder)
    change(file, lambda content: content.update(loss_mask=content["loss_mask"].flip(0)))
    plan, done = ingest(unproven("speculators-v1", [folder], tmp_path))
    assert (plan.looked.n_there, done.n_samples) == (len(LENGTHS) - 1, 0)
    assert done.quarantined == {"mask_conflict": 1}
    assert "expected the mask of the dataset" in str(done.refused[0].problems[0])


def test_states_whose_tokens_are_not_their_rows_are_left_out(now: Path, tmp_path: Path) -> None:
    states = now / "hidden_states"
    first, second = load_file(states / "hs_0.safetensors"), load_file(states / "hs_1.safetensors")
    save_file(second, states / "hs_0.safetensors")
    save_file(first, states / "hs_1.safetensors")
    save_file(first, states / "hs_10.safetensors")
    found = left_out(*ingest(unproven("speculators", [now], tmp_path)))
    assert found.keys() == {f"hidden_states/hs_{row}.safetensors" for row in (0, 1, 10)}
    assert "token ids of row 0" in found["hidden_states/hs_0.safetensors"]
    assert "expected hs_0 to hs_9" in found["hidden_states/hs_10.safetensors"]


def test_states_of_8_bits_are_refused_unless_they_are_asked_for(now: Path, tmp_path: Path) -> None:
    states = now / "hidden_states"
    wide = {}
    for file in states.iterdir():
        content = load_file(file)
        values = content["hidden_states"].float()
        scales = (values.abs().amax(dim=(1, 2), keepdim=True) / 448).clamp(min=1e-12)
        narrow = (values / scales).to(torch.float8_e4m3fn)
        wide[file.name] = narrow.to(torch.bfloat16) * scales.to(torch.bfloat16)
        save_file(content | {"hidden_states": narrow, "hidden_states_scales": scales}, file)
    with pytest.raises(IngestError, match="expected states of 16 bits or more"):
        plan_ingest(unproven("speculators", [now], tmp_path), 2)
    assert not (tmp_path / "back").exists()
    ingest(unproven("speculators", [now], tmp_path, dequantise="bfloat16"))
    snapshot = back(tmp_path)
    for sample_id in snapshot.sample_ids:
        at = snapshot.location(sample_id)
        name = Path(snapshot.part(at).sample(at.row_start, at.n_tokens).source).name
        got = snapshot.read(sample_id).tensors["final"].view(np.int16)
        assert np.array_equal(got, wide[name][:, -1].contiguous().view(torch.int16).numpy())


def lengths(looked: Looked) -> dict[str, int]:
    return {facts.listed.name: facts.n_tokens for facts in looked.fresh}


def test_padding_is_cut_where_it_can_be_told_and_refused_where_not(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "rows_0-2000"
    folder.mkdir()
    padded(folder / "data_0.ckpt", [5, 6, 7, 2], 3)
    padded(folder / "data_1.ckpt.gz", [5, 6, 7, 2, 9], 4)
    padded(folder / "data_2.ckpt", [5, 6, 7, 8], 0)
    padded(folder / "data_3.ckpt", [5, 6, 8, 8, 8], 1)
    shutil.copy(exported / "v1" / "strata_card.json", tmp_path / "strata_card.json")
    monkeypatch.setattr("datagen.ingest.plan._endings", lambda _asked: (2,))
    labels = ("layer2", "layer4", "layer5", "final_normed")
    found = {}
    for padding in ("tell", "keep", "cut"):
        asked = unproven("specforge", [folder], tmp_path, labels=labels, padding=padding)
        found[padding] = plan_ingest(asked, 2)
    names = [f"data_{number}.ckpt{'.gz' if number == 1 else ''}" for number in range(4)]
    assert lengths(found["tell"].looked) == dict(zip(names, (4, 5, 4), strict=False))
    assert lengths(found["keep"].looked) == dict(zip(names, (7, 9, 4, 6), strict=True))
    assert lengths(found["cut"].looked) == dict(zip(names, (4, 5, 4, 5), strict=True))
    (refused,) = found["tell"].looked.refused
    assert refused.listed.name == "data_3.ckpt"
    assert "give --padding cut where they are padding" in str(refused.problems[0])


def test_a_file_that_changes_between_the_look_and_the_writing_is_left_out(
    folder: Path, tmp_path: Path
) -> None:
    plan = plan_ingest(unproven("speculators-v1", [folder], tmp_path), 2)
    file = longest(folder)
    change(file, lambda content: content["input_ids"].__setitem__(0, 7))
    gone = file.with_name("data_0.pt")
    gone.unlink()
    with Stopping() as stopping:
        found = left_out(plan, write(plan, 2, stopping))
    assert found.keys() == {str(one.relative_to(folder)) for one in (file, gone)}
    assert "it changed meanwhile" in found[str(file.relative_to(folder))]
    assert "got none of this name" in found[str(gone.relative_to(folder))]


def test_a_file_whose_states_are_written_again_or_cut_after_the_look_is_left_out(
    folder: Path, now: Path, tmp_path: Path
) -> None:
    """Its ids are what they were, so that nothing but its time says that the proof was of other states."""
    plan = plan_ingest(unproven("speculators-v1", [folder], tmp_path), 2)
    first, second = (next(folder.rglob(f"data_{number}.pt")) for number in (1, 4))
    before = first.stat().st_mtime_ns
    change(first, lambda content: content["hidden_states"].reverse())
    os.utime(first, ns=(before, before + 1))
    cut(second)
    with Stopping() as stopping:
        found = left_out(plan, write(plan, 2, stopping))
    assert found.keys() == {str(one.relative_to(folder)) for one in (first, second)}
    assert "it changed meanwhile" in found[str(first.relative_to(folder))]
    assert "expected a whole file of torch.save" in found[str(second.relative_to(folder))]
    plan = plan_ingest(unproven("speculators", [now], tmp_path / "now"), 2)
    cut(now / "hidden_states" / "hs_1.safetensors")
    with Stopping() as stopping:
        (told,) = left_out(plan, write(plan, 2, stopping)).values()
    assert "expected a whole safetensors file" in told


def test_where_nothing_can_be_taken_nothing_is_written(folder: Path, tmp_path: Path) -> None:
    for file in folder.rglob("data_*.pt"):
        change(file, without_a_mask)
    with pytest.raises(IngestError, match="none of the files can be brought in") as error:
        plan_ingest(unproven("speculators-v1", [folder], tmp_path), 2)
    (problem,) = error.value.problems
    assert problem.where == f"data_0.pt: loss_mask and {len(LENGTHS) - 1} more"
    assert not (tmp_path / "back").exists()
    _, done = ingest(unproven("speculators-v1", [folder], tmp_path, masks="ones"))
    assert done.n_samples == len(LENGTHS)
    assert (back(tmp_path).index.trained_lengths == back(tmp_path).index.lengths).all()


@pytest.mark.parametrize(
    ("file_format", "told"),
    [
        ("speculators", "expected files called hs_0.safetensors, got none"),
        ("specforge", "expected files called data_0.ckpt or data_0.ckpt.gz, got none"),
        ("deepspec", "manifest.json"),
    ],
)
def test_a_folder_of_another_format_is_refused(
    file_format: str, told: str, folder: Path, tmp_path: Path
) -> None:
    (folder / "strata_rows.jsonl").unlink()
    with pytest.raises(ConfigError, match=told.replace(".", r"\.")) as error:
        plan_ingest(unproven(file_format, [folder], tmp_path, masks="ones"), 2)
    assert error.value.exit_code == 2
    assert not (tmp_path / "back").exists()


def test_a_list_of_rows_that_is_damaged_is_named(folder: Path, tmp_path: Path) -> None:
    rows = folder / "strata_rows.jsonl"
    rows.write_text(rows.read_text() + '{"row": 1')
    with pytest.raises(IngestError, match=r"strata_rows\.jsonl:11"):
        plan_ingest(unproven("speculators-v1", [folder], tmp_path), 2)


def test_a_prepared_dataset_that_is_damaged_is_named(now: Path, tmp_path: Path) -> None:
    arrow = next(now.glob("*.arrow"))
    arrow.write_bytes(arrow.read_bytes()[:100])
    with pytest.raises(IngestError, match="expected a dataset of save_to_disk"):
        plan_ingest(unproven("speculators", [now], tmp_path), 2)


def test_without_the_rows_beside_conversations_are_named_after_files(folder: Path, tmp_path: Path) -> None:
    (folder / "strata_rows.jsonl").unlink()
    ingest(unproven("speculators-v1", [folder], tmp_path))
    snapshot = back(tmp_path)
    conversations = {snapshot.conversation_of(sample_id) for sample_id in snapshot.sample_ids}
    assert conversations == {str(file.relative_to(folder)) for file in folder.rglob("data_*.pt")}


def test_a_dataset_of_another_schema_is_refused_before_the_proof(folder: Path, tmp_path: Path) -> None:
    ingest(unproven("speculators-v1", [folder], tmp_path))
    labels = ("embed", "layer2", "layer4", "final")
    with pytest.raises(Exception, match="was made otherwise") as error:
        plan_ingest(unproven("speculators-v1", [folder], tmp_path, labels=labels), 2)
    assert "schema.tensors.embed" in str(error.value)
    assert Dataset.open(LocalDoor(tmp_path), "back").snapshot().version.number == 1


def test_tensors_that_say_to_be_larger_than_their_file_are_left_out(folder: Path, tmp_path: Path) -> None:
    file = longest(folder)
    many = torch.zeros(1, dtype=torch.int64).expand(10**9)
    states = [torch.ones(1, 1, dtype=torch.bfloat16).expand(10**9, 8) for _ in range(4)]
    torch.save({"input_ids": many, "loss_mask": many, "hidden_states": states}, file)
    found = left_out(*ingest(unproven("speculators-v1", [folder], tmp_path)))
    assert "bytes of tensors in a file of its size" in found[str(file.relative_to(folder))]


def test_names_that_utf8_cannot_write_are_written_all_the_same(folder: Path, tmp_path: Path) -> None:
    (folder / "strata_rows.jsonl").unlink()
    odd = folder / os.fsdecode(b"caf\xe9")
    odd.mkdir()
    longest(folder).rename(odd / longest(folder).name)
    ingest(unproven("speculators-v1", [folder], tmp_path))
    snapshot = back(tmp_path)
    names = {snapshot.conversation_of(sample_id) for sample_id in snapshot.sample_ids}
    assert any(name.startswith("caf\\udce9/data_") for name in names)


def test_a_bit_that_turned_over_in_an_export_is_found_by_its_list(now: Path, tmp_path: Path) -> None:
    file = now / "hidden_states" / "hs_4.safetensors"
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    found = left_out(*ingest(unproven("speculators", [now], tmp_path)))
    assert found.keys() == {"hidden_states/hs_4.safetensors"}
    assert "as the export's list says, got" in found["hidden_states/hs_4.safetensors"]
    (now / SUMS).unlink()
    assert ingest(unproven("speculators", [now], tmp_path / "other"))[1].refused == ()
