"""vLLM's speculative config: one JSON object on the command line, its keys also as flags of their own."""

import json
from collections.abc import Sequence

from schemas.consumers.serving.command_line import Flag, flags_of
from schemas.consumers.serving.flags import ServingFlags
from schemas.consumers.serving.rules import SpeculativeConfigRules, rules
from schemas.consumers.serving.target import ServedTarget
from schemas.consumers.versions import in_range
from schemas.problem import Problem, Severity

CONFIG = "--speculative-config"
_SHORT = {"--spec-method": "method", "--spec-model": "model", "--spec-tokens": "num_speculative_tokens"}
_LARGEST = 1_000_000


def read_speculative_config(version: str, words: Sequence[str], _target: ServedTarget) -> ServingFlags:
    """Return what vLLM at a version (one that was read) makes of its arguments."""
    config = _Config(version)
    for flag in flags_of(words):
        config.take(flag)
    return config.resolved()


class _Config:
    """The config as it gathers: the object, then the flags that stand for its keys."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.rules: SpeculativeConfigRules = rules().vllm
        self.problems: list[Problem] = []
        self.values: dict[str, object] | None = None
        self.shorts: dict[str, str] = {}

    def take(self, flag: Flag) -> None:
        """Add one flag; those that have nothing to do with drafting are passed over."""
        dashed = flag.name.replace("_", "-").lower()
        name, _, key = dashed.partition(".")
        if not name.startswith(("--spec", "-sc", "--num-spec")):
            return
        if name not in self.rules.flags or not in_range(self.version, self.rules.flags[name]):
            self._strange(flag.name[:80], name)
        elif name in _SHORT:
            self.shorts[name] = flag.value or ""
            self._set(_SHORT[name], flag.value, name)
        elif key:
            self._set(key.replace("-", "_"), _loose(flag.value), flag.name[:80])
        else:
            self._take_object(flag.value)

    def _strange(self, written: str, name: str) -> None:
        versions = self.rules.flags.get(name)
        if versions is not None:
            self._refuse(written, f"it has no {name}; {versions} has", f"write the key into {CONFIG}")
        elif name.startswith(("--speculative-", "--num-spec", "--spec-")):
            self._say(
                written,
                "unknown_flag",
                f"not among the flags read in vLLM {self.version}: passed over here, most likely refused "
                "there",
                f"write it as a key of {CONFIG}",
            )

    def _say(self, where: str, kind: str, message: str, repair: str | None = None) -> None:
        severity: Severity = "note" if kind in ("note", "unknown_flag") else "error"
        self.problems.append(
            Problem(where=where, kind=kind, message=message, repair=repair, severity=severity)
        )

    def _refuse(self, where: str, message: str, repair: str) -> None:
        self._say(where, "refused", f"vLLM {self.version} does not start: {message}", repair)

    def _take_object(self, text: str | None) -> None:
        example = f'write {CONFIG} \'{{"method": "eagle3", "num_speculative_tokens": 3}}\''
        try:
            given = json.loads(text or "")
        except (ValueError, RecursionError):
            self._refuse(CONFIG, f"expected a JSON object, got {(text or 'nothing')[:80]}", example)
            return
        if not isinstance(given, dict):
            self._refuse(CONFIG, f"expected a JSON object, got {type(given).__name__}", example)
            return
        for key, value in given.items():
            self._set(key.replace("-", "_"), value, f"{CONFIG}.{key[:80]}")

    def _set(self, key: str, value: object, where: str) -> None:
        self.values = self.values if self.values is not None else {}
        versions = self.rules.keys.get(key)
        if versions is None:
            self._refuse(where, f"it has no key {key[:80]}", "drop it, or check the spelling")
        elif not in_range(self.version, versions):
            self._refuse(
                where, f"it has no key {key}; {versions} has", "drop it, or serve with such a version"
            )
        if key in self.values and self.values[key] != value and where in _SHORT:
            self._refuse(where, f"{where} and {CONFIG}['{key}'] exclude one another", f"drop {where}")
        self.values[key] = value

    def resolved(self) -> ServingFlags:
        """Return what runs."""
        flags = ServingFlags(server="vllm", version=self.version)
        if self.values is None:
            return flags.model_copy(update={"problems": tuple(self.problems)})
        method, model = self._method(), self.values.get("model")
        tokens = self._tokens(method)
        if "speculative_token_tree" in self.values:
            self._say(
                f"{CONFIG}.speculative_token_tree",
                "note",
                "a tree is not judged: the numbers here are a chain's",
            )
        if "num_speculative_tokens_per_batch_size" in self.values:
            self._say(
                f"{CONFIG}.num_speculative_tokens_per_batch_size",
                "note",
                "the number of tokens changes with the load",
            )
        refused = any(problem.kind == "refused" for problem in self.problems)
        chain = tokens is not None and not refused
        update: dict[str, object] = {
            "algorithm": method,
            "draft_model": model[:4096] if isinstance(model, str) else None,
            "steps": tokens if chain else None,
            "topk": 1 if chain else None,
            "draft_tokens": tokens + 1 if chain and tokens is not None else None,
            "equivalent": _equivalent(method, model, tokens) if chain else None,
            "problems": tuple(self.problems),
        }
        return flags.model_copy(update=update)

    def _method(self) -> str:
        values = self.values or {}
        method, model = values.get("method"), values.get("model")
        if isinstance(method, str):
            if method != "eagle3":
                self._say(
                    f"{CONFIG}.method", "note", f"{method[:80]} is not eagle3: what it runs is not judged"
                )
            return method[:80]
        if method is not None:
            self._refuse(
                f"{CONFIG}.method",
                f"expected a name, got {type(method).__name__}",
                'write "method": "eagle3"',
            )
            return "unknown"
        path = model.lower() if isinstance(model, str) else ""
        found = "eagle" if "eagle-" in path else "eagle3" if "eagle3" in path else "draft_model"
        if found == "eagle3" and not in_range(self.version, self.rules.method_from_path):
            found = "eagle" if "eagle3-" in path else "draft_model"
        message = f"no method given: vLLM {self.version} looks at the draft's path and takes {found}"
        if found == "eagle3":
            self._say(f"{CONFIG}.method", "note", message)
        else:
            self._say(f"{CONFIG}.method", "wrong_method", message, 'write "method": "eagle3"')
        return found

    def _tokens(self, method: str) -> int | None:
        values = self.values or {}
        given, where = values.get("num_speculative_tokens"), f"{CONFIG}.num_speculative_tokens"
        if isinstance(given, str):
            given = int(given) if given.isascii() and given.isdecimal() and len(given) < 10 else given
        if given is None:
            if method in self.rules.may_lack_tokens:
                self._say(where, "note", "not given: the number stands in the draft's config")
            else:
                self._refuse(where, "expected a number, got none", 'write "num_speculative_tokens": 3, say')
            return None
        if isinstance(given, bool) or not isinstance(given, int) or not 0 < given <= _LARGEST:
            said = str(given)[:80] if isinstance(given, str | float | bool) else type(given).__name__
            self._refuse(
                where,
                f"expected a whole number of at least 1, got {said}",
                'write "num_speculative_tokens": 3',
            )
            return None
        return given


def _loose(value: str | None) -> object:
    """Return a value of `--speculative-config.key value` as vLLM reads it: JSON, or else the text."""
    try:
        read: object = json.loads(value or "null")
    except (ValueError, RecursionError):
        return value
    return read


def _equivalent(method: str, model: object, tokens: int | None) -> str | None:
    if method != "eagle3" or tokens is None:
        return None
    draft = f" --speculative-draft-model-path {model[:4096]}" if isinstance(model, str) else ""
    return (
        f"--speculative-algorithm EAGLE3{draft} --speculative-num-steps {tokens} --speculative-eagle-topk 1 "
        f"--speculative-num-draft-tokens {tokens + 1}"
    )
