"""SGLang's server arguments, resolved as SGLang does: aliases, numbers chosen, numbers set over yours.

The order of the rules is SGLang's own; from which version each holds stands in `rules.toml`.
"""

import json
from collections.abc import Sequence

from schemas.consumers.serving.command_line import Flag, flags_of
from schemas.consumers.serving.flags import ServingFlags
from schemas.consumers.serving.rules import ServerArgsRules, rules
from schemas.consumers.serving.target import ServedTarget
from schemas.consumers.versions import in_range
from schemas.problem import Problem, Severity

ALGORITHM = "--speculative-algorithm"
DRAFT = "--speculative-draft-model-path"
STEPS = "--speculative-num-steps"
TOPK = "--speculative-eagle-topk"
DRAFT_TOKENS = "--speculative-num-draft-tokens"
WINDOW = "--speculative-draft-window-size"
ADAPTIVE = "--speculative-adaptive"
_OTHERS = (
    "--page-size",
    "--attention-backend",
    "--decode-attention-backend",
    "--prefill-attention-backend",
    "--config",
)
_LARGEST = 1_000_000
"""More tokens than this a step are a slip of the finger."""


def read_server_args(version: str, words: Sequence[str], target: ServedTarget) -> ServingFlags:
    """Return what SGLang at a version (one that was read) makes of its arguments."""
    return _Arguments(version, words).resolved(target)


class _Arguments:
    """The arguments on their way to what runs: `steps`, `topk` and `draft_tokens` change as rules apply."""

    def __init__(self, version: str, words: Sequence[str]) -> None:
        self.version = version
        self.rules: ServerArgsRules = rules().sglang
        self.problems: list[Problem] = []
        self.values: dict[str, str | None] = {}
        for flag in flags_of(words):
            self._take(flag)
        self.steps = self._count(STEPS)
        self.topk = self._count(TOPK)
        self.draft_tokens = self._count(DRAFT_TOKENS)
        self.window = self._count(WINDOW)

    def resolved(self, target: ServedTarget) -> ServingFlags:
        """Apply the rules in SGLang's order."""
        algorithm = self._algorithm()
        if algorithm in self.rules.eagle and not self._stopped():
            self._choose(target)
            self._trees()
            self._chain()
            self._capacity()
        elif algorithm is not None and algorithm not in self.rules.eagle:
            self.steps = self.topk = self.draft_tokens = None
        draft = self.values.get(DRAFT) or self.values.get("--speculative-draft-model")
        refused = algorithm is None or self._stopped()
        flags = ServingFlags(
            server="sglang",
            version=self.version,
            algorithm=algorithm,
            draft_model=draft,
            steps=None if refused else self.steps,
            topk=None if refused else self.topk,
            draft_tokens=None if refused else self.draft_tokens,
            window=self.window,
        )
        equivalent = None if refused else self._equivalent(flags)
        return flags.model_copy(update={"equivalent": equivalent, "problems": tuple(self.problems)})

    def _stopped(self) -> bool:
        return any(problem.kind in ("refused", "fails") for problem in self.problems)

    def _holds(self, versions: str) -> bool:
        return in_range(self.version, versions)

    def _say(self, where: str, kind: str, message: str, repair: str | None = None) -> None:
        severity: Severity = "note" if kind in ("note", "chosen", "unknown_flag") else "error"
        self.problems.append(
            Problem(where=where, kind=kind, message=message, repair=repair, severity=severity)
        )

    def _refuse(self, where: str, message: str, repair: str) -> None:
        self._say(where, "refused", f"SGLang {self.version} does not start: {message}", repair)

    def _take(self, flag: Flag) -> None:
        name = self._full_name(flag.name)
        if name is None:
            return
        if name in self.values and self.values[name] != flag.value:
            self._say(name, "note", f"given twice: the last one counts, {str(flag.value)[:80]}")
        self.values[name] = flag.value

    def _full_name(self, name: str) -> str | None:
        """Return the flag that argparse takes `name` for; it completes a beginning that only one flag has."""
        known = [flag for flag, versions in self.rules.flags.items() if self._holds(versions)]
        if name in known or name in _OTHERS:
            return name
        if not name.startswith("--spec"):
            return None
        whole = [flag for flag in known if flag.startswith(name)]
        if len(whole) == 1:
            self._say(whole[0], "note", f"written as {name[:80]}: SGLang completes it")
            return whole[0]
        if name in self.rules.flags:
            versions = self.rules.flags[name] or "any version"
            self._refuse(name, f"it has no {name}; {versions} has", "drop it, or serve with such a version")
        elif len(whole) > 1:
            self._refuse(
                name[:80], f"expected a whole flag, got the beginning of {len(whole)}", f"write {whole[0]}"
            )
        else:
            self._say(
                name[:80],
                "unknown_flag",
                f"not among the flags read in SGLang {self.version}: passed over here, most likely refused "
                "there",
                "check the spelling",
            )
        return None

    def _count(self, name: str) -> int | None:
        if name not in self.values:
            return None
        value = self.values[name]
        try:
            number = int(value) if value is not None else None
        except ValueError:
            number = None
        if number is None or not 0 < number <= _LARGEST:
            said = "nothing" if value is None else repr(value[:80])
            self._refuse(name, f"expected a whole number of at least 1, got {said}", f"write {name} 3, say")
            return None
        return number

    def _algorithm(self) -> str | None:
        given = self.values.get(ALGORITHM)
        if given is None:
            idle = [name for name in self.values if name.startswith("--speculative")]
            if idle:
                self._say(
                    ALGORITHM,
                    "idle",
                    f"expected {ALGORITHM}, got none: nothing is drafted, and {', '.join(idle)} has no "
                    "effect",
                    f"add {ALGORITHM} EAGLE3",
                )
            if "--config" in self.values:
                self._say("--config", "note", "flags in a config file are not read here")
            return None
        name = given.upper()
        if name != given and not self._holds(self.rules.any_case):
            self._refuse(ALGORITHM, f"expected capital letters, got {given[:80]}", f"write {name[:80]}")
        if name == "NEXTN":
            self._say(ALGORITHM, "note", "NEXTN is another word for EAGLE")
            name = "EAGLE"
        if name in self.rules.eagle:
            if name == "EAGLE":
                message = (
                    "EAGLE feeds a draft the target's last state only; one with an fc over layers is EAGLE3"
                )
                self._say(ALGORITHM, "note", message, f"write {ALGORITHM} EAGLE3 for one")
        elif name in self.rules.others and self._holds(self.rules.others[name]):
            self._say(
                ALGORITHM, "note", f"{name} has rules of its own, not read here: what runs is not judged"
            )
        else:
            self._refuse(ALGORITHM, f"expected EAGLE3, got {given[:80]}", f"write {ALGORITHM} EAGLE3")
        return name[:80]

    def _choose(self, target: ServedTarget) -> None:
        if ADAPTIVE in self.values and self._adaptive():
            return
        if self.steps is not None:
            return
        given = [name for name in (TOPK, DRAFT_TOKENS) if name in self.values]
        if given:
            self._refuse(
                STEPS,
                f"{', '.join(given)} without {STEPS} is an AssertionError: all three are given, or none",
                f"add {STEPS}, or drop {' and '.join(given)}",
            )
            return
        chosen = self.rules.chosen(self.version, target.architecture, target.model_type)
        if chosen is None:
            message = (
                "no numbers given: SGLang chooses them by the target's architecture, which is not known here"
            )
            self._say(
                STEPS, "chosen", message, "give the target's config, or write the three numbers yourself"
            )
            return
        self.steps, self.topk, self.draft_tokens = chosen
        architecture = target.architecture or target.model_type or "every target"
        self._say(
            STEPS,
            "chosen",
            f"no numbers given: SGLang {self.version} chooses, for {architecture[:80]}, {STEPS} {chosen[0]} "
            f"{TOPK} {chosen[1]} {DRAFT_TOKENS} {chosen[2]}",
        )

    def _adaptive(self) -> bool:
        """Set the numbers that adaptive drafting starts from; false where SGLang turns it off."""
        if self.topk not in (None, 1):
            self._say(
                ADAPTIVE, "overridden", f"turned off: it needs {TOPK} 1, got {self.topk}", f"write {TOPK} 1"
            )
            return False
        candidates = next(line.steps for line in self.rules.adaptive_candidates if self._holds(line.versions))
        own = "--speculative-adaptive-config" in self.values
        if self.steps is not None and not own and self.steps not in candidates:
            among = ", ".join(map(str, candidates))
            self._refuse(
                STEPS, f"expected one of {among} with {ADAPTIVE}, got {self.steps}", f"write {STEPS} 3"
            )
        self.topk = 1
        if self.steps is None and not own:
            self.steps = self.rules.adaptive_default_steps
        if self.steps is not None:
            self.draft_tokens = self.steps + 1
        self._say(
            ADAPTIVE, "note", "the number of steps changes while serving; what stands here is where it begins"
        )
        return True

    def _trees(self) -> None:
        """Apply what a tree (topk above 1) needs of pages and attention backends."""
        if self.steps is not None and self.topk is None:
            compared = self._holds(self.rules.topk_is_compared)
            what = "it is compared with a number, a TypeError" if compared else "nothing fills it in"
            self._refuse(TOPK, f"expected {TOPK} beside {STEPS}, got none: {what}", f"add {TOPK} 1")
        pages = self._count("--page-size")
        if self.topk not in (None, 1) and (pages or 1) > 1 and self._holds(self.rules.pages_need_topk_one):
            message = (
                f"expected {TOPK} {self.topk}, runs 1: SGLang {self.version} drafts chains only over pages"
            )
            self._say(TOPK, "overridden", message, "write --page-size 1 for a tree")
            self.topk = 1
        adjusted = self.topk == 1 and self._holds(self.rules.chain_is_steps_plus_one)
        if self.topk is not None and self.draft_tokens is None and self.steps is not None and not adjusted:
            self._refuse(
                DRAFT_TOKENS,
                f"expected {DRAFT_TOKENS} beside {TOPK} {self.topk}, got none: nothing fills it in",
                f"add {DRAFT_TOKENS} {self.steps + 1}",
            )
        if self.topk is None or self.topk == 1:
            return
        self._backends(pages)

    def _backends(self, pages: int | None) -> None:
        backend = self.values.get("--attention-backend")
        named = [self.values.get(name) for name in _OTHERS if name.endswith("attention-backend")]
        if "trtllm_mha" in named and self._holds(self.rules.trtllm_mha_needs_topk_one):
            self._refuse(TOPK, f"trtllm_mha takes {TOPK} 1 only, got {self.topk}", f"write {TOPK} 1")
        line = next((line for line in self.rules.pages_of_trees if self._holds(line.versions)), None)
        if pages is None or pages == 1 or line is None or backend in line.backends:
            return
        among = ", ".join(line.backends)
        if backend is None:
            self._say(
                "--attention-backend",
                "note",
                f"a tree over pages of {pages} tokens runs with the attention backends {among} only, and "
                "SGLang chooses one by the machine",
            )
            return
        self._refuse(
            "--page-size",
            f"{TOPK} {self.topk} over pages of {pages} tokens needs the attention backend {among}, got "
            f"{backend[:80]}",
            "write --page-size 1, or another --attention-backend",
        )

    def _chain(self) -> None:
        if self.topk != 1 or self.steps is None or not self._holds(self.rules.chain_is_steps_plus_one):
            return
        runs, given = self.steps + 1, self.draft_tokens
        self.draft_tokens = runs
        if given in (None, runs):
            return
        self._say(
            DRAFT_TOKENS,
            "overridden",
            f"expected {given} draft tokens, runs {runs}: with {TOPK} 1 the draft makes one token a step, a "
            f"chain, so SGLang {self.version} sets the number to steps + 1 = {runs} ({self.steps} drafted, "
            f"and the token that they continue), whatever {DRAFT_TOKENS} says; only its log tells",
            f"write {STEPS} {max(given - 1, 1)} {TOPK} 1 {DRAFT_TOKENS} {max(given, 2)} for {given}, or "
            f"{DRAFT_TOKENS} {runs} to say what runs",
        )

    def _capacity(self) -> None:
        """Compare with a tree's candidates: topk at the first step, topk squared at each later one."""
        if self.steps is None or self.topk is None or self.draft_tokens is None:
            return
        candidates = self.topk + (self.steps - 1) * self.topk**2
        if self.draft_tokens - 1 > candidates:
            self._say(
                DRAFT_TOKENS,
                "fails",
                f"expected at most {candidates + 1} with {STEPS} {self.steps} {TOPK} {self.topk}, got "
                f"{self.draft_tokens}: the tree has no more candidates, and SGLang fails at the first "
                "request",
                f"write {DRAFT_TOKENS} {candidates + 1}, or more steps",
            )
        elif self.topk > 1 and self.draft_tokens <= self.steps:
            self._say(
                DRAFT_TOKENS,
                "note",
                f"{self.steps} steps are drafted, but only {self.draft_tokens - 1} tokens are kept for the "
                "target: the deepest steps are drafted for nothing",
                f"write {DRAFT_TOKENS} {self.steps + 1} or more",
            )

    def _equivalent(self, flags: ServingFlags) -> str | None:
        if flags.steps is None or flags.topk is None or flags.algorithm != "EAGLE3":
            return None
        if flags.topk > 1:
            self._say(TOPK, "note", f"vLLM drafts chains, no trees: {flags.steps} tokens are the nearest")
        config: dict[str, str | int] = {"method": "eagle3", "num_speculative_tokens": flags.steps}
        if flags.draft_model:
            config["model"] = flags.draft_model
        return f"--speculative-config '{json.dumps(config)}'"
