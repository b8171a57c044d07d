"""SGLang's own code: what its speculative serving flags become before a server starts."""

import ast
import dataclasses
import functools
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

from tests.oracle.borrow import borrow, defines, find
from tests.oracle.stream import Owner
from tests.oracle.wheels import source


@dataclasses.dataclass(frozen=True)
class Flags:
    """`--speculative-num-steps`, `--speculative-eagle-topk`, `--speculative-num-draft-tokens`."""

    steps: int | None = None
    topk: int | None = None
    draft_tokens: int | None = None


class _Environment:
    """Their environment variables, each unset."""

    def __getattr__(self, _: str) -> SimpleNamespace:
        return SimpleNamespace(get=lambda: 0)


def effective(version: str, flags: Flags, architecture: str) -> Flags:
    """The flags that a server of that release really runs with, for the EAGLE3 algorithm.

    Raises what their code raises: AssertionError or TypeError for a part of the flags without the rest.
    """
    hf_config = SimpleNamespace(architectures=[architecture])
    args = Owner(
        speculative_algorithm="EAGLE3",
        speculative_num_steps=flags.steps,
        speculative_eagle_topk=flags.topk,
        speculative_num_draft_tokens=flags.draft_tokens,
        speculative_draft_model_path="draft",
        speculative_draft_model_revision="main",
        speculative_adaptive=False,
        speculative_use_rejection_sampling=False,
        max_running_requests=1,
        attention_backend="flashinfer",
        page_size=1,
        device="cuda",
        json_model_override_args="{}",
        get_model_config=lambda: SimpleNamespace(hf_config=hf_config),
        get_hf_config=lambda: hf_config,
    )
    hook = source("sglang", version) / "srt" / "arg_groups" / "speculative_hook.py"
    if defines(hook, "_handle_eagle_family"):
        borrow(hook, "_handle_eagle_family", _hook_names(version, args))(args)
    else:
        _run_block(version, args)
    decided = vars(args)
    return Flags(
        *(decided[f"speculative_{name}"] for name in ("num_steps", "eagle_topk", "num_draft_tokens"))
    )


def _hook_names(version: str, args: Owner) -> dict[str, Any]:
    """Their stash of decided values, replaced by the arguments themselves."""

    def declare(_args: object, _by: str, **values: Any) -> None:
        args.__dict__.update(values)

    same = lambda _: args  # noqa: E731
    return {
        "resolving_view": same,
        "resolved_view": same,
        "declare_resolution": declare,
        "attention_backends_of": lambda _: (),
        "model_config_of": lambda _: args.get_model_config(),
        "_handle_iquest_q1_mtp_draft": lambda _: False,
        "_disable_overlap_schedule_for_cpu": lambda _: None,
        "_check_oot_speculative_algorithm": lambda **_: None,
        "auto_choose_speculative_params": _choose(version, args),
        "envs": _Environment(),
        "_should_auto_enable_hip_rejection_sampling": lambda **_: False,
    }


def _run_block(version: str, args: Owner) -> None:
    """Before the hook: the two `if` statements of `ServerArgs` that decide the flags, cut out and run."""
    path = source("sglang", version) / "srt" / "server_args.py"
    choose = _choose(version, args)
    scope: dict[str, Any] = {"self": args, "auto_choose_speculative_params": choose, "logger": Owner()}
    scope["model_arch"] = args.get_model_config().hf_config.architectures[0]
    exec(_blocks(path), scope)


@functools.cache
def _blocks(path: Path) -> CodeType:
    """The two statements, ready to run."""
    wanted = (
        "auto_choose_speculative_params(self)",
        "self.speculative_num_draft_tokens = self.speculative_num_steps + 1",
    )
    texts = [
        (node, ast.unparse(node)) for node in ast.walk(find(path, "ServerArgs")) if isinstance(node, ast.If)
    ]
    blocks = [min((pair for pair in texts if text in pair[1]), key=_length)[0] for text in wanted]
    return compile(ast.Module(list(blocks), []), str(path), "exec")


def _choose(version: str, args: Owner) -> Any:
    """Their choice without flags; where the model's config is read by a function, that is replaced too."""
    path = source("sglang", version) / "srt" / "server_args.py"
    if not defines(path, "auto_choose_speculative_params"):  # it moved into the hook
        return None
    given = {"get_config": lambda *_, **__: args.get_model_config().hf_config}
    return borrow(path, "auto_choose_speculative_params", given)


def _length(pair: tuple[ast.If, str]) -> int:
    return len(pair[1])
