"""speculators' own code: how it splits stored states into input and target, and how it shifts a sample."""

import ast
from types import SimpleNamespace

import torch

from tests.oracle.borrow import borrow, defines, tree
from tests.oracle.stream import Layer, Owner, Ranks, embedded, norm
from tests.oracle.wheels import source


def split_list(version: str, boundaries: list[int]) -> tuple[list[int], int]:
    """(`fc` input, target) of a v1 record whose list holds states in that order.

    Raises MissingCodeError for releases without a v1 reader.
    """
    path = source("speculators", version) / "train" / "data.py"
    states = [torch.full((1, 1), float(b)) for b in boundaries]
    record = {"hidden_states": states, "input_ids": torch.zeros(1), "loss_mask": torch.zeros(1)}
    return _roles(borrow(path, "standardize_data_v1")(record))


def split_slots(version: str, boundaries: list[int]) -> tuple[list[int], int]:
    """(`fc` input, target) of an `hs_{i}.safetensors` whose slots hold states in that order."""
    path = source("speculators", version) / "train" / "data.py"
    stored = {
        "hidden_states": torch.tensor(boundaries, dtype=torch.float32)[None, :, None],
        "token_ids": torch.zeros(1, dtype=torch.long),
    }
    dataset = Owner(
        data=[{"input_ids": stored["token_ids"], "loss_mask": torch.ones(1)}],
        transfer=SimpleNamespace(get_cached=lambda _: stored),
        _map_to_file_idx=lambda index: index,
        _maybe_load_hs_file=lambda _: stored,
        hidden_states_dtype=torch.float32,
    )
    given = {"SampleUnavailable": type("SampleUnavailable", (), {})}
    return _roles(borrow(path, "ArrowDataset._get_raw_data", given)(dataset, 0))


def _roles(sample: dict[str, torch.Tensor]) -> tuple[list[int], int]:
    fc = [int(value) for value in sample["hidden_states"].flatten()]
    return fc, int(sample["verifier_last_hidden_states"].item())


def applies_norm(version: str) -> bool:
    """Whether the trainer normalises the target state itself, before the target's own head."""
    path = source("speculators", version) / "models" / "eagle3" / "core.py"
    calls = [ast.unparse(node) for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
    return any(call.startswith("self.verifier_norm(") for call in calls)


def shift(version: str, length: int = 6) -> dict[str, list[int]]:
    """What `shift_batch` makes of a sample in which everything at position i is the number i."""
    package = source("speculators", version)
    path = package / "models" / "eagle3" / "data.py"
    if not defines(path, "shift_batch"):
        path = package / "train" / "data.py"
    names = ("input_ids", "hidden_states", "verifier_last_hidden_states", "loss_mask", "position_ids")
    batch = {name: torch.arange(length) for name in names} | {"lengths": torch.tensor([length])}
    return {name: value.tolist() for name, value in borrow(path, "shift_batch")(batch).items()}


def resolve_ids(version: str, ids: list[int] | None, n_layers: int) -> list[int]:
    """What the trainer makes of `--target-layer-ids`, `None` being its default.

    Raises ValueError where it refuses them, and MissingCodeError for releases whose trainer resolves none.
    """
    path = source("speculators", version) / "models" / "utils.py"
    config = SimpleNamespace(num_hidden_layers=n_layers)
    given = {"get_verifier_config": lambda *_, **__: config, "warnings": Owner()}
    return list(borrow(path, "resolve_target_layer_ids", given)(ids, "target"))


def captured_by_v1(version: str, ids: list[int], n_layers: int) -> list[int]:
    """The boundaries in v1's list of states: its patched `forward`, run over a counting stream."""
    path = source("speculators", version) / "data_generation" / "custom_worker.py"
    stored: list[list[torch.Tensor]] = []
    extension = SimpleNamespace(_layer_ids=frozenset(ids), _store_captured_states=stored.append)
    decoder = Owner(
        _extension=extension,
        layers=[Layer(("hidden_states", "residual")) for _ in range(n_layers)],
        start_layer=0,
        end_layer=n_layers,
        norm=norm,
        get_input_embeddings=lambda _: embedded(),
        embed_input_ids=lambda _: embedded(),
    )
    forward = borrow(path, "_patched_forward", {"get_pp_group": Ranks, "get_tp_group": Ranks})
    forward(decoder, torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.long))
    return [int(state.item()) for state in stored[0]] if stored else []
