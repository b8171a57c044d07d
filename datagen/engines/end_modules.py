"""Which modules are a model's ends: its embedding, its final norm and its lm_head, as transformers says.

The model is one without memory (the meta device); what is not found once is told, never guessed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

from datagen.engines.errors import OpeningError
from datagen.engines.layers import find_decoder
from schemas.problem import Problem

UNFIT = (OSError, ValueError, ImportError, RuntimeError, KeyError, TypeError, AttributeError)
"""What transformers raises for a config, or a module for rows, that do not go together."""


class EndModules(NamedTuple):
    """A model's ends, and the paths at which they stand in it; `norm` has no memory."""

    norm: nn.Module
    norm_path: str
    embedding_path: str
    head_path: str
    """The embedding's where the two are tied."""
    embedding_problem: Problem | None
    """What keeps the table's rows from being what goes into the first layer, as far as modules say."""

    @property
    def norm_names(self) -> dict[str, str]:
        """The paths of the norm's parameters by their names in it."""
        return {name: f"{self.norm_path}.{name}" for name, _ in self.norm.named_parameters()}


def find_ends(config: Any) -> EndModules:
    """Return the ends of the model that transformers makes of `config`.

    Raises `OpeningError` with everything that is not found once, and for a type without a class.
    """
    model = _without_memory(config)
    body = find_decoder(model).body
    norms = [(name, one) for name, one in body.named_children() if _is_norm(one)]
    embedding, head = body.get_input_embeddings(), model.get_output_embeddings()
    problems = []
    if len(norms) != 1:
        got = ", ".join(name for name, _ in norms) or "none"
        problems.append(_problem("final norm", f"expected one norm beside the layers, got {got}"))
    if type(head) is not nn.Linear:
        problems.append(_problem("lm_head", f"expected a linear layer, got {type(head).__name__}"))
    if problems:
        raise refusal(problems)
    paths = {id(one): path for path, one in model.named_modules()}
    tied = head.weight is embedding.weight or getattr(
        config.get_text_config(decoder=True), "tie_word_embeddings", False
    )
    norm = norms[0][1]
    return EndModules(
        norm=norm,
        norm_path=paths[id(norm)],
        embedding_path=paths[id(embedding)],
        head_path=paths[id(embedding)] if tied else paths[id(head)],
        embedding_problem=_embedding_problem(body, embedding, norm),
    )


def table_problem(config: Any) -> Problem | None:
    """Return why rows of the embedding table are not what goes into the first layer, `None` where they are.

    Raises `OpeningError` where transformers cannot tell.
    """
    problem = find_ends(config).embedding_problem
    repair = "leave embed out, or take the engine hf"
    return None if problem is None else problem.model_copy(update={"repair": repair})


def rows_problems(table: Callable[[], Problem | None], *, embed: bool, norm: bool = False) -> list[Problem]:
    """Return why `embed` rows, or the norm's, cannot be made of the model's files; `table` is `table_problem`
    of its config, which is asked only where one of them is."""
    if not embed and not norm:
        return []
    try:
        problem = table()
    except OpeningError as error:
        return list(error.problems)
    return [problem] if embed and problem is not None else []


def refusal(problems: list[Problem]) -> OpeningError:
    """Return the error of a model whose ends cannot be told."""
    return OpeningError("the ends of the model cannot be read from its files", problems)


def _without_memory(config: Any) -> Any:
    for auto_class in (AutoModelForCausalLM, AutoModelForImageTextToText):
        if type(config) in auto_class._model_mapping:
            try:
                with torch.device("meta"):
                    return auto_class.from_config(config)
            except UNFIT as error:
                message = (
                    f"expected a model that transformers can lay out, got {type(error).__name__}: {error}"
                )
                raise refusal([_problem(config.model_type, message)]) from error
    message = "expected a type that transformers has a class for, got none"
    raise refusal([_problem(config.model_type, message)])


def _is_norm(module: nn.Module) -> bool:
    shapes = [parameter.ndim for parameter in module.parameters()]
    return bool(shapes) and all(n == 1 for n in shapes) and not list(module.children())


def _embedding_problem(body: Any, embedding: nn.Module, norm: nn.Module) -> Problem | None:
    known = (embedding, norm)
    others = [
        name
        for name, one in body.named_children()
        if one not in known and not isinstance(one, nn.ModuleList) and list(one.parameters())
    ]
    if type(embedding) is not nn.Embedding:
        got = type(embedding).__name__
    elif others:
        got = f"{', '.join(others)} beside it"
    else:
        return None
    return _problem("embed", f"expected a plain embedding table before the first layer, got {got}")


def _problem(where: str, message: str) -> Problem:
    return Problem(where=where, kind="model", message=message)
