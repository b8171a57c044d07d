"""The engine `openai` against a double of its server: the contract, and all that may break on the way."""

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from datagen.engines.base import Engine
from datagen.engines.errors import EngineError, OpeningError
from datagen.engines.opening import (
    boundary_problems,
    engine_version,
    longest_sample,
    open_engine,
    read_target,
)
from datagen.engines.owned_names import new_name
from datagen.engines.server_folder import SharedFolder
from datagen.engines.settings import EngineSettings, OpenaiSettings
from schemas.boundary import all_names
from schemas.schema import DType, Schema
from tests.contract.engine_contract import EngineContract, token_errors
from tests.datagen.engines.conftest import TinyFolder
from tests.datagen.engines.dead_names import name_of_the_dead
from tests.datagen.engines.state_server import PATIENCE_SECONDS, Fault, StateServer

N_LAYERS = 3
NAMES = ("embed", "layer1", "final")


def server_of(model: Path, shared: Path, dtype: DType = "float32", **changes: object) -> StateServer:
    settings = EngineSettings(name="hf", model=str(model), dtype=dtype, device="cpu")
    ids = tuple(range(N_LAYERS + 1))
    return StateServer(settings, shared, **{"ids": ids, **changes})  # type: ignore[arg-type]


def settings_of(server: StateServer, **changes: object) -> EngineSettings:
    own = {
        "base_url": server.base_url,
        "shared_folder": str(server.shared),
        "layer_ids": server.ids,
        "timeout_seconds": 20.0,
        "backoff_seconds": 0.0,
        "retries": 2,
    }
    openai = OpenaiSettings.model_validate({**own, **changes})
    engine = server.settings
    return EngineSettings(name="openai", model=engine.model, dtype=engine.dtype, openai=openai)


def schema_of(server: StateServer, names: tuple[str, ...] = NAMES) -> Schema:
    return Schema.declare(server.engine.target, names, server.settings.dtype)


@pytest.fixture(scope="module")
def running(tiny_folder: TinyFolder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StateServer]:
    with server_of(tiny_folder("llama"), tmp_path_factory.mktemp("shared")) as server:
        yield server


@pytest.fixture
def server(running: StateServer) -> Iterator[StateServer]:
    running.faults.clear()
    running.requests.clear()
    yield running
    left = sorted(path.name for path in running.shared.iterdir())
    for path in running.shared.iterdir():
        path.unlink()
    assert left == [], "files were left"


Opening = Callable[..., Engine]


@pytest.fixture
def opened(server: StateServer) -> Iterator[Opening]:
    made: list[Engine] = []

    def opened(names: tuple[str, ...] = NAMES, **changes: object) -> Engine:
        made.append(open_engine(settings_of(server, **changes), schema_of(server, names)))
        return made[-1]

    yield opened
    for engine in made:
        engine.close()


class TestFloat32(EngineContract):
    SAME_TOKEN_TOLERANCE = 1e-5

    @pytest.fixture
    def engine(self, opened: Opening) -> Engine:
        return opened()


class TestBfloat16(EngineContract):
    NORM_TOLERANCE = 1e-3
    SAME_TOKEN_TOLERANCE = 0.03

    @pytest.fixture
    def engine(self, tiny_folder: TinyFolder, tmp_path: Path) -> Iterator[Engine]:
        with server_of(tiny_folder("qwen3"), tmp_path, "bfloat16") as server:
            engine = open_engine(settings_of(server), schema_of(server))
            yield engine
            engine.close()
            assert list(tmp_path.iterdir()) == []


def test_every_boundary_is_that_of_the_model(server: StateServer, opened: Opening) -> None:
    names = all_names(N_LAYERS)
    ids = [5, 9, 200, 3, 3, 17]
    (got,) = opened(tuple(names)).submit([ids]).result()
    (want,) = server.engine.handing_out(schema_of(server, tuple(names))).submit([ids]).result()
    for name in names:
        if name == "final_normed":
            assert token_errors(got.tensors[name], want.tensors[name]).max() < 1e-5
        else:
            assert got.tensors[name].tobytes() == want.tensors[name].tobytes(), name


def test_says_what_was_proven_and_what_was_not(server: StateServer, opened: Opening) -> None:
    engine = opened()
    assert engine.info.version == "vllm 0.32.0 over http" == engine_version(settings_of(server))
    assert engine.info.extra["proven"] == "embed, final"
    assert engine.info.extra["unproven"] == "layer1, layer2"
    assert longest_sample(settings_of(server)) == 127


def test_embed_comes_from_the_files_where_the_server_has_it_not(
    tiny_folder: TinyFolder, tmp_path: Path
) -> None:
    with server_of(tiny_folder("llama"), tmp_path, ids=(1, 3)) as server:
        engine = open_engine(settings_of(server), schema_of(server))
        (got,) = engine.submit([[7, 8, 7]]).result()
        whole = server.engine.handing_out(schema_of(server))
        (want,) = whole.submit([[7, 8, 7]]).result()
        for name in NAMES:
            assert got.tensors[name].tobytes() == want.tensors[name].tobytes(), name
        assert "embedding table" in engine.info.extra["embed"]
        audit = schema_of(server, tuple(all_names(N_LAYERS)))
        (problem,) = boundary_problems(settings_of(server), audit)
        assert problem.message.startswith("expected layers 2 among those")
        engine.close()


@pytest.mark.parametrize("fault", ["429", "500", "drop"])
def test_tries_again_what_may_be_tried_again(server: StateServer, opened: Opening, fault: Fault) -> None:
    engine = opened()
    server.faults.extend([fault, fault])
    (capture,) = engine.submit([[1, 2, 3]]).result()
    assert capture.token_ids.tolist() == [1, 2, 3]


def test_gives_up_when_the_tries_are_used_up(server: StateServer, opened: Opening) -> None:
    engine = opened()
    server.faults.extend(["500"] * 3)
    with pytest.raises(EngineError, match=r"got 500: .*told to say 500.* \(3 tries\)"):
        engine.submit([[1, 2, 3]]).result()


def test_waits_for_a_lock_that_is_held(server: StateServer, opened: Opening) -> None:
    engine = opened()
    server.faults.append("slow_lock")
    (capture,) = engine.submit([[1, 2, 3]]).result()
    assert capture.token_ids.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("400", "expected an answer, got 400: .*told to say 400"),
        ("cut", "expected a whole safetensors file, got"),
        ("foreign", "expected the states of the 3 ids that were asked for, got the states of 3 others"),
        ("shortened", "expected 3 rows of states, got 2"),
        ("no_file", "expected the states of a request, got no file behind a free lock"),
        ("no_lock", "expected the lock of a file in the shared folder, got none"),
        ("no_path", "expected hidden_states_path in kv_transfer_params, got none"),
        ("outside", "/elsewhere/.*: expected a safetensors file in .*, got another path"),
    ],
)
def test_tells_what_is_wrong_with_a_sample_and_goes_on(
    server: StateServer, opened: Opening, fault: Fault, message: str
) -> None:
    engine = opened(concurrency=1)
    server.faults.append(fault)
    with pytest.raises(EngineError, match=message) as caught:
        engine.submit([[1, 2, 3], [4, 5]]).result()
    assert [problem.where.partition(":")[0] for problem in caught.value.problems] == ["sample 0"]
    # A file that the server does not name is left until the engine is closed.
    assert bool(list(server.shared.iterdir())) == (fault in ("no_path", "outside"))
    (capture,) = engine.submit([[4, 5]]).result()
    assert capture.token_ids.tolist() == [4, 5]


def test_a_lock_that_is_never_freed_is_told_and_its_file_swept(
    tiny_folder: TinyFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with server_of(tiny_folder("llama"), tmp_path) as server:
        engine = open_engine(settings_of(server, timeout_seconds=2, retries=0), schema_of(server))
        server.faults.append("held_lock")
        with pytest.raises(EngineError, match=r"expected a whole file within 2 s, got a lock"):
            engine.submit([[1, 2, 3]]).result()
        server.faults.append("late")
        with pytest.raises(EngineError, match="ReadTimeout"):
            engine.submit([[1, 2, 3]]).result()
        server.release()
        other = tmp_path / "somebody-elses.safetensors"
        other.touch()
        engine.close()
        assert list(tmp_path.iterdir()) == [other]
    assert "2 files of requests that were given up were left" in caplog.text


def test_files_of_a_process_that_was_killed_are_swept_by_the_next_engine(
    tiny_folder: TinyFolder, tmp_path: Path
) -> None:
    with server_of(tiny_folder("llama"), tmp_path) as server:
        stem = f"cmpl-{name_of_the_dead()}7-0-0-ab12cd34.safetensors"
        mine = f"cmpl-{new_name()}7-0-0-ab12cd34.safetensors"
        for name in (stem, f"{stem}.lock", mine, "somebody-elses.safetensors"):
            (server.shared / name).touch()
        open_engine(settings_of(server), schema_of(server)).close()
        assert {path.name for path in server.shared.iterdir()} == {mine, "somebody-elses.safetensors"}


def test_no_more_requests_are_under_way_than_it_is_told(server: StateServer, opened: Opening) -> None:
    engine = opened(concurrency=2)
    server.most_under_way = 0
    server.meeting = threading.Barrier(2, timeout=PATIENCE_SECONDS)
    engine.submit([[one, 2, 3] for one in range(12)]).result()
    server.meeting = None
    assert server.most_under_way == 2


def test_no_request_may_be_served_from_anothers_prefix(server: StateServer, opened: Opening) -> None:
    opened().submit([[1, 2, 3], [1, 2, 3]]).result()
    assert list(server.shared.iterdir()) == []
    salts = [request["cache_salt"] for request in server.requests]
    assert len(set(salts)) == len(salts)
    assert {request["request_id"].rpartition("-")[0] for request in server.requests} == set(salts)


def test_the_key_is_taken_from_the_environment(
    server: StateServer, opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_OF_THE_SERVER", "secret")
    opened(api_key_variable="KEY_OF_THE_SERVER").submit([[1]]).result()
    assert {request["authorization"] for request in server.requests} == {"Bearer secret"}


def test_a_path_that_leads_out_by_a_link_is_refused_and_not_removed(tmp_path: Path) -> None:
    shared, elsewhere = tmp_path / "shared", tmp_path / "elsewhere"
    shared.mkdir()
    elsewhere.mkdir()
    precious = elsewhere / "x.safetensors"
    precious.touch()
    (shared / "link").symlink_to(elsewhere)
    (shared / "y.safetensors").symlink_to(precious)
    paths = ["link/x.safetensors", "../elsewhere/x.safetensors", "y.safetensors", "model.bin"]
    for path in paths:
        for folder, named in ((SharedFolder(shared), shared), (SharedFolder(shared, "/srv"), Path("/srv"))):
            with pytest.raises(EngineError, match="got another path"):
                folder.take(f"{named}/{path}", 1.0)
    assert precious.exists()
    place = SharedFolder(shared, "/srv/states").place_of("/srv/states/a/b.safetensors")
    assert place == shared / "a" / "b.safetensors"


def test_what_the_files_cannot_make_is_refused(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    """Positions are added to GPT-2's rows before its first layer: the table alone is not `embed`."""
    with server_of(tiny_folder("gpt2"), tmp_path, ids=(1, 2)) as server:
        with pytest.raises(OpeningError, match=r"expected a plain embedding table .*, got wpe beside it"):
            open_engine(settings_of(server), schema_of(server, ("embed", "layer1")))
        open_engine(settings_of(server), schema_of(server, ("layer1",))).close()


class TestWhatIsNotAsItShouldBe:
    def test_no_server(self, server: StateServer) -> None:
        settings = settings_of(server, base_url="http://127.0.0.1:9", retries=0)
        with pytest.raises(OpeningError, match="ConnectError") as caught:
            longest_sample(settings)
        command = str(caught.value)
        assert "vllm serve" in command
        assert '"eagle_aux_hidden_state_layer_ids": [0, 1, 2, 3]' in command
        assert f'"shared_storage_path": "{server.shared}"' in command
        assert "--dtype float32 --no-enable-prefix-caching" in command

    def test_another_model_by_name(self, server: StateServer) -> None:
        with pytest.raises(OpeningError, match="expected llama, got the-model"):
            open_engine(settings_of(server, served_model="llama"), schema_of(server))

    def test_another_model_by_its_weights(
        self, server: StateServer, tiny_folder: TinyFolder, tmp_path: Path
    ) -> None:
        other = shutil.copytree(tiny_folder("llama"), tmp_path / "other")
        weights = {
            name: tensor.roll(1, 0).contiguous()
            for name, tensor in load_file(other / "model.safetensors").items()
        }
        save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
        settings = settings_of(server).model_copy(update={"model": str(other)})
        schema = Schema.declare(read_target(settings), NAMES, "float32")
        with pytest.raises(OpeningError) as caught:
            open_engine(settings, schema)
        assert [problem.where for problem in caught.value.problems] == ["embed", "final"]

    def test_an_old_server(self, server: StateServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server, "version", "0.20.1")
        with pytest.raises(OpeningError, match=r"expected vLLM 0\.32 or newer, got 0\.20\.1"):
            engine_version(settings_of(server))

    def test_other_slots_than_declared(self, server: StateServer) -> None:
        settings = settings_of(server, layer_ids=(0, 1, 3))
        with pytest.raises(OpeningError, match="expected 3 slots as declared, got 4"):
            open_engine(settings, schema_of(server))

    def test_layers_in_another_place_than_declared(self, tiny_folder: TinyFolder, tmp_path: Path) -> None:
        with server_of(tiny_folder("llama"), tmp_path, ids=(1, 2)) as server:
            settings = settings_of(server, layer_ids=(0, 3))
            with pytest.raises(OpeningError) as caught:
                open_engine(settings, schema_of(server, ("embed", "final")))
        assert [problem.where for problem in caught.value.problems] == ["embed", "final"]
        assert list(tmp_path.iterdir()) == []

    def test_another_dtype(self, server: StateServer) -> None:
        settings = settings_of(server).model_copy(update={"dtype": "bfloat16"})
        schema = Schema.declare(server.engine.target, NAMES, "bfloat16")
        with pytest.raises(OpeningError, match="expected bfloat16, got states of float32"):
            open_engine(settings, schema)

    def test_another_folder(self, server: StateServer, tmp_path: Path) -> None:
        settings = settings_of(server, shared_folder=str(tmp_path))
        with pytest.raises(OpeningError, match="got another path"):
            open_engine(settings, schema_of(server))
        for path in server.shared.iterdir():
            path.unlink()

    def test_nothing_declared(self, server: StateServer) -> None:
        settings = settings_of(server, shared_folder=None, layer_ids=())
        wheres = [problem.where for problem in boundary_problems(settings, schema_of(server))]
        assert wheres == [
            "engine.openai.shared_folder",
            "engine.openai.layer_ids",
            "engine.openai.layer_ids",
        ]
