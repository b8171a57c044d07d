"""The demo's parts without its trainer: what is written down, what is another number, and the service."""

import json
import logging
from pathlib import Path

import pytest

from deploy.demo.live import training
from deploy.demo.live.__main__ import table_of
from deploy.demo.live.recorded_trainer import recorder
from deploy.demo.live.service import serving
from deploy.demo.live.training import Ran, Way, course, differences, train
from deploy.demo.registry import DemoError
from service.client.client import Client
from tests.service.serving import make_dataset


def test_metrics_are_written_down_unrounded_and_without_the_clock(tmp_path: Path) -> None:
    logger = logging.getLogger("strata.tests.metrics")
    logger.setLevel(logging.INFO)
    logger.addFilter(recorder(tmp_path / "metrics"))
    logger.info({"train": {"loss": 0.1 + 0.2}, "profile": {"ms": 1.5}, "epoch": 0}, extra={"step": 3})
    logger.info({"val": {"loss_epoch": 1.0}})
    logger.info({"seed": 0})
    logger.info("text")
    written = [json.loads(line) for line in (tmp_path / "metrics").read_text().splitlines()]
    assert written == [
        {"train": {"loss": 0.30000000000000004}, "epoch": 0, "step": 3},
        {"val": {"loss_epoch": 1.0}, "step": None},
    ]


def ran(*losses: float) -> Ran:
    return Ran(tuple({"train": {"loss": loss}, "step": step} for step, loss in enumerate(losses)), 1.0)


def test_the_last_digit_counts() -> None:
    assert not differences([ran(0.3, 0.2), ran(0.3, 0.2), ran(0.3, 0.2)])
    (one,) = differences([ran(0.3, 0.2), ran(0.3, 0.2), ran(0.30000000000000004, 0.2)])
    assert one.startswith("run 3: expected {'train': {'loss': 0.3}")
    assert len(differences([ran(0.3), ran(0.3, 0.2)])) == 1


def test_the_table_has_every_digit() -> None:
    table = table_of({"files": ran(0.1 + 0.2), "live": ran(0.3)})
    assert [list(column.cells) for column in table.columns] == [
        ["0"],
        ["0.30000000000000004"],
        ["0.3"],
        ["DIFFERENT"],
    ]


def test_all_ways_are_trained_alike(tmp_path: Path) -> None:
    assert course(tmp_path, 5, 0) == course(tmp_path, 5, 0)
    words = course(tmp_path, 5, 2)
    assert dict(zip(words[::2], words[1::2], strict=True))["--num-workers"] == "2"


def test_a_run_that_fails_shows_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "MODEL", tmp_path)
    way = Way("live", "live", ("--data", str(tmp_path / "none"), "--prepared", str(tmp_path / "p")))
    with pytest.raises(DemoError, match="live: the trainer ended with exit status"):
        train(way, tmp_path / "run", 1, tmp_path)


def test_the_service_listens_as_long_as_the_block_lasts(tmp_path: Path) -> None:
    samples = make_dataset(tmp_path)
    with serving(tmp_path) as url, Client(url) as client:
        rows = client.version("demo").tensors(samples[0].sample_id)
        assert client.mode == "http"
        assert rows.tensors["final"].tobytes() == samples[0].tensors["final"].tobytes()
