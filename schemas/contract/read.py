"""From a draft's config.json to its contract, in the layouts that exist, with what is wrong in the file.

A contract always comes back: what cannot be read is a problem, and counts as not said.
"""

from collections.abc import Mapping

from schemas.contract.draft import DraftContract, Layout, Norms, Shape, Vocabulary
from schemas.contract.fields import Fields
from schemas.contract.rope import read_rope
from schemas.problem import Problem

SPECULATORS_KEYS = ("speculators_model_type", "transformer_layer_config", "speculators_config")
"""One of these at the top makes a config one of speculators' own format (vLLM asks for the first)."""
_FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
_IDS = "eagle_aux_hidden_state_layer_ids"


def read_contract(draft_config: object) -> tuple[DraftContract, tuple[Problem, ...]]:
    """Return the contract that a draft's config.json states, and what is wrong in it.

    In speculators' format a missing `norm_before_residual` stays `None`, since its readers disagree.

    >>> config = {"eagle_config": {"norm_before_fc": True}, "norm_before_fc": False}
    >>> contract, problems = read_contract(config)
    >>> contract.norms.norm_before_fc, problems[0].kind
    (True, 'conflict')
    """
    if not isinstance(draft_config, Mapping):
        problem = Problem(
            where="draft config",
            kind="type",
            message=f"expected a JSON object, got {type(draft_config).__name__}",
            repair="give the config.json that lies beside the draft's weights",
        )
        return DraftContract(), (problem,)
    problems: list[Problem] = []
    top = Fields(draft_config, "", problems)
    layout: Layout = "speculators" if any(key in draft_config for key in SPECULATORS_KEYS) else "plain"
    body = top.section("transformer_layer_config") if layout == "speculators" else top
    nested = top.section("eagle_config")
    for key, section in (("eagle_config", nested), ("transformer_layer_config", body)):
        if section is not top and key in section.values:
            problems.append(_nested_twice(key))
    contract = DraftContract(
        layout=layout,
        architecture=_first_name(top),
        model_type=body.text("model_type"),
        norms=_norms(top, body, nested, layout),
        rope=read_rope(body),
        shape=_shape(top, body, nested),
        vocabulary=_vocabulary(top, body),
        sliding_window=_sliding_window(body),
        tie_word_embeddings=_tied(top, body),
        embed_trained=top.flag("embed_requires_grad") or False,
    )
    return contract, tuple(problems)


def _nested_twice(key: str) -> Problem:
    return Problem(
        where=f"{key}.{key}",
        kind="nested_twice",
        message=f"expected no {key} inside {key}, got one: no reader looks there",
        repair=f"move what it holds one level up, into {key}",
    )


def _first_name(top: Fields) -> str | None:
    names = top.values.get("architectures")
    if names is None:
        return None
    if isinstance(names, list) and names and isinstance(names[0], str):
        return names[0]
    top.expected("architectures", "a list of one name", names)
    return None


def _norms(top: Fields, body: Fields, nested: Fields, layout: Layout) -> Norms:
    values: dict[str, bool | None] = {}
    for name in _FLAGS:
        above, below = top.flag(name), nested.flag(name)
        inside = body.flag(name) if body is not top else None
        if below is not None and name != "norm_before_fc" and above is None:
            top.problems.append(_misplaced(name, "eagle_config"))
        if inside is not None and above is None:
            top.problems.append(_misplaced(name, "transformer_layer_config"))
        said = [value for value in (below, above, inside) if value is not None]
        if len(set(said)) > 1:
            top.problems.append(_conflict(name, above, below, inside))
        # The nested value wins for norm_before_fc in SGLang and vLLM; the other flags are read at the top.
        order = (below, above, inside) if name == "norm_before_fc" else (above, below, inside)
        values[name] = next((value for value in order if value is not None), None)
    if values["norm_before_residual"] is None and layout == "plain":
        values["norm_before_residual"] = False
    if top.flag("use_aux_norm"):
        values["fc_norm"] = True
        top.note("use_aux_norm", "an old spelling of fc_norm that only SGLang reads", 'write "fc_norm": true')
    _exclusive(top, values)
    return Norms(
        norm_before_residual=values["norm_before_residual"],
        norm_before_fc=values["norm_before_fc"] or False,
        fc_norm=values["fc_norm"] or False,
        norm_output=values["norm_output"] or False,
    )


def _exclusive(top: Fields, values: Mapping[str, bool | None]) -> None:
    if values["norm_before_fc"] and values["fc_norm"]:
        top.problems.append(
            Problem(
                where="norm_before_fc",
                kind="conflict",
                message="expected norm_before_fc or fc_norm, got both: no trainer makes such a draft, "
                "speculators refuses it, and servers run one norm after the other",
                repair="set to false the one that the weights were not trained with",
            )
        )
    if values["norm_output"] and "LlamaForCausalLMEagle3" in str(_first_name(top)):
        top.note(
            "norm_output",
            "two meanings: SGLang, vLLM and speculators feed the normed state back to the next step; in "
            "SpecForge 0.2.0 it only says that the lm_head reads a normed state, and the raw one is fed "
            "back",
            'a draft trained by SpecForge wants "norm_output": false in the config that is served',
        )


def _misplaced(name: str, where: str) -> Problem:
    return Problem(
        where=f"{where}.{name}",
        kind="misplaced",
        message=f"expected {name} at the top of config.json, got it in {where} only, where no reader looks",
        repair=f"write {name} at the top of config.json",
    )


def _conflict(name: str, above: bool | None, below: bool | None, inside: bool | None) -> Problem:
    places = {"the top": above, "eagle_config": below, "transformer_layer_config": inside}
    said = ", ".join(
        f"{str(value).lower()} in {place}" for place, value in places.items() if value is not None
    )
    return Problem(
        where=name,
        kind="conflict",
        message=f"expected one value, got {said}: readers differ in which they take",
        repair=f"keep the {name} that the weights were trained with, in one place",
    )


def _shape(top: Fields, body: Fields, nested: Fields) -> Shape:
    n_slots = top.count("num_aux_hidden_states")
    for fields in (nested, top):
        ids = fields.values.get(_IDS)
        if n_slots is None and isinstance(ids, list) and ids:
            n_slots = len(ids)
    return Shape(
        n_layers=body.count("num_hidden_layers"),
        hidden_size=body.count("hidden_size"),
        target_hidden_size=top.count("target_hidden_size"),
        head_dim=body.count("head_dim"),
        n_slots=n_slots,
    )


def _vocabulary(top: Fields, body: Fields) -> Vocabulary:
    draft_size, inside = top.count("draft_vocab_size"), body.count("draft_vocab_size")
    if draft_size and inside and draft_size != inside:
        top.problems.append(
            Problem(
                where="draft_vocab_size",
                kind="conflict",
                message=f"expected one size, got {draft_size} at the top and {inside} in "
                "transformer_layer_config",
                repair="keep the number of rows of lm_head.weight",
            )
        )
    return Vocabulary(size=body.count("vocab_size"), draft_size=draft_size or inside)


def _sliding_window(body: Fields) -> int | None:
    window, types = body.count("sliding_window"), body.values.get("layer_types")
    if types is not None and not isinstance(types, list):
        body.expected("layer_types", "a list of layer types", types)
        return None
    if types:
        return window if "sliding_attention" in types else None
    if window is not None and body.flag("use_sliding_window") is not False:
        body.note(
            "sliding_window",
            f"got {window} without layer_types: speculators and vLLM look at layer_types and take no window",
            'write "layer_types": ["sliding_attention"] where the draft was trained with a window of '
            f"{window}",
        )
    return None


def _tied(top: Fields, body: Fields) -> bool:
    above, inside = top.flag("tie_word_embeddings"), body.flag("tie_word_embeddings")
    return bool(inside if inside is not None else above)
