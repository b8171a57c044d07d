"""The dataset that is exported: made once a module, and read only."""

import pytest

from tests.datagen.adapters.exports.builders import make_dataset


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_dataset(tmp_path_factory.mktemp("dataset"))
