"""Which slot of a server's files holds which tensor, and what is made beside them from the model's files."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from datagen.engines.settings import EngineSettings
from datagen.engines.vllm_layers import SCALING, Layers, layers_of
from schemas.boundary import EMBED, FINAL
from schemas.problem import Problem
from schemas.schema import Schema


class ServerLayers(NamedTuple):
    """`slots` says which slot of a file holds which tensor.

    `embed_beside`: rows of the embedding table are `embed`. `normed`: the norm of the model's files on the
    slot `final_slot` is `final_normed`. `assumed` is what is not declared of this release or this model.
    """

    slots: dict[str, int]
    embed_beside: bool
    normed: bool
    final_slot: int
    assumed: tuple[str, ...] = ()


def server_layers(
    settings: EngineSettings, schema: Schema, release: str, config: Any
) -> ServerLayers | list[Problem]:
    """Return where the tensors of `schema` are, or why a server that captures `openai.layer_ids` has not all.

    vLLM sorts its ids and drops what is double: slots are those of the sorted ids.
    """
    declared = settings.openai.layer_ids
    text = config.get_text_config(decoder=True)
    problems = _setting_problems(settings, schema)
    beside = EMBED in schema.names and 0 not in declared and not _scales(text)
    asked = _without_embed(schema) if beside else schema
    if asked is None:
        found: Layers | list[Problem] = Layers((), {}, False, False)
    else:
        found = layers_of(asked, release, text)
    if not isinstance(found, Layers):
        return [*problems, *found]
    beside = beside or found.embed_beside
    missing = sorted(set(found.ids) - set(declared))
    if missing:
        said = ", ".join(map(str, missing))
        message = f"expected layers {said} among those that the server captures, got {list(declared)}"
        repair = (
            "start the server with them (eagle_aux_hidden_state_layer_ids), and declare all that it captures"
        )
        problems.append(
            Problem(where="engine.openai.layer_ids", kind="boundary", message=message, repair=repair)
        )
    if problems:
        return problems
    place = {layer: slot for slot, layer in enumerate(sorted(set(declared)))}
    slots = {name: place[found.ids[slot]] for name, slot in found.slots.items()}
    return ServerLayers(slots, beside, found.normed, slots.get(FINAL, -1), found.assumed)


def _setting_problems(settings: EngineSettings, schema: Schema) -> list[Problem]:
    told: list[tuple[str, str]] = []
    own = settings.openai
    if own.shared_folder is None:
        told.append(("shared_folder", "expected the folder that the server writes to, got none"))
    if not own.layer_ids:
        told.append(("layer_ids", "expected the ids that the server was started with, got none"))
    if wrong := [one for one in own.layer_ids if not 0 <= one <= schema.target.n_layers]:
        told.append(("layer_ids", f"expected ids from 0 to {schema.target.n_layers}, got {_said(wrong)}"))
    return [Problem(where=f"engine.openai.{name}", kind="setting", message=message) for name, message in told]


def _scales(text_config: Any) -> bool:
    return any(getattr(text_config, name, None) not in (None, False, 1, 1.0) for name in SCALING)


def _without_embed(schema: Schema) -> Schema | None:
    names = [name for name in schema.names if name != EMBED]
    return Schema.declare(schema.target, names, schema.tensors[0].dtype) if names else None


def _said(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))
