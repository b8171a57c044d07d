"""Roots and models as every process understands them."""

from pathlib import Path

import pytest

from datagen.engines.settings import EngineSettings
from datagen.planning.places import absolute_model, absolute_root, root_problems


def test_a_relative_place_is_made_absolute_and_a_url_or_hub_id_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    assert absolute_root("data") == str(tmp_path / "data")
    assert absolute_root("s3://bucket/data") == "s3://bucket/data"
    assert absolute_model(EngineSettings(model="model")).model == str(tmp_path / "model")
    assert absolute_model(EngineSettings(model="owner/name")).model == "owner/name"


def test_in_a_rays_jobs_copy_a_relative_root_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert root_problems("data") == []
    copy = tmp_path / "working_dir_files" / "_ray_pkg_0123"
    copy.mkdir(parents=True)
    monkeypatch.chdir(copy)
    assert root_problems("/data") == root_problems("s3://bucket") == []
    (problem,) = root_problems("data")
    assert "expected an absolute folder or a bucket inside a Ray job, got 'data'" in str(problem)
