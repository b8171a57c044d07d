"""The engine `openai`: a vLLM server that is up already, asked over HTTP, its states read from a folder.

A request is the ids of a sample and one token; what the server captured lies in a file, named in the answer.
Which layers those are cannot be asked: they are declared, and proven at the opening as far as that is cheap
(the number of slots, width and dtype; `embed` against the embedding table, `final` through the norm and the
head, both of the model's files). The others are said to be unproven. No request may be served from another's
prefix: each has a salt of its own.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datagen.engines.architecture import read_config, read_config_file
from datagen.engines.assumed import in_words, teller
from datagen.engines.base import Capture, Engine, EngineInfo
from datagen.engines.end_modules import rows_problems, table_problem
from datagen.engines.errors import EngineError, OpeningError
from datagen.engines.identity import longest_sample as positions_of
from datagen.engines.identity import read_target
from datagen.engines.loading import TORCH_DTYPES
from datagen.engines.model_files import locate
from datagen.engines.opening import Giving
from datagen.engines.opening_checks import schema_problems
from datagen.engines.positions import one_side_problem
from datagen.engines.sample_checks import checked
from datagen.engines.server_asking import Asking, Told
from datagen.engines.server_facts import OLDEST, ServerFacts, ask_facts, refused
from datagen.engines.server_layers import ServerLayers, server_layers
from datagen.engines.server_proof import prove
from datagen.engines.server_requests import Requests
from datagen.engines.settings import EngineSettings
from datagen.engines.synthetic import NUMPY_DTYPES
from datagen.engines.target_head import TargetHead
from schemas.boundary import EMBED, FINAL_NORMED
from schemas.problem import Problem
from schemas.schema import Schema
from schemas.target import Target

__all__ = ["giving", "longest_sample", "open_engine", "read_target", "version_of"]


def version_of(settings: EngineSettings) -> str:
    """Return the version of what computes, which the server says.

    Raises `OpeningError` where it does not answer as a vLLM does.
    """
    return _version(_facts(settings))


def longest_sample(settings: EngineSettings) -> int | None:
    """Return the most tokens of a sample: one less than a request's, since each says one token more.

    Raises `OpeningError` where the model's files cannot be read, or the server does not answer.
    """
    return _longest(settings, _facts(settings))


def giving(settings: EngineSettings, config_file: Path | None) -> Giving:
    """Ask what this server gives; with a `config_file`, what one of the oldest release does.

    Raises `OpeningError` where the model's files cannot be read, or the server does not answer.
    """
    if config_file is None:
        facts, config = _facts(settings), _config(settings)
    else:
        facts = ServerFacts(".".join(map(str, (*OLDEST, 0))), "", None)
        config = read_config_file(config_file)
    length = _length_problems(config, facts)
    table, tell = cache(partial(table_problem, config)), teller("openai")

    def problems(_opened: Schema, asked: Schema) -> list[Problem]:
        found = server_layers(settings, asked, facts.release, config)
        if not isinstance(found, ServerLayers):
            return length + found
        tell(found.assumed)
        return length + rows_problems(table, embed=found.embed_beside, norm=found.normed)

    return problems


def open_engine(settings: EngineSettings, schema: Schema) -> Engine:
    """Ask the server for a few tokens and prove what can be.

    Raises `OpeningError` when the server, its model, its folder or its layers are not what they should be.
    """
    target = read_target(settings)
    problems = schema_problems(schema, target, settings.dtype)
    if problems:
        raise OpeningError("the schema is not of the model that was opened", problems)
    facts = _facts(settings)
    config = _config(settings)
    layers = server_layers(settings, schema, facts.release, config)
    problems = _length_problems(config, facts)
    if not isinstance(layers, ServerLayers) or problems:
        found = [] if isinstance(layers, ServerLayers) else layers
        raise refused(settings, problems + found, settings.openai.layer_ids)
    server = Server(settings, target, facts, config)
    try:
        server.open()
        server.check_ends(layers)
    except EngineError as error:
        server.close()
        raise refused(settings, error.problems, settings.openai.layer_ids) from error
    except BaseException:
        server.close()
        raise
    return ServerEngine(server, schema, layers)


def _length_problems(config: Any, facts: ServerFacts) -> list[Problem]:
    where = "engine.openai.base_url (max_model_len)"
    repair = "start it with --max-model-len {}, with prompts.max_tokens = {} or less, or take the engine hf"
    problem = one_side_problem(config.get_text_config(decoder=True), facts.longest, where, repair)
    return [] if problem is None else [problem]


def _facts(settings: EngineSettings) -> ServerFacts:
    requests = Requests(settings.openai)
    try:
        return ask_facts(settings, requests)
    finally:
        requests.close()


def _config(settings: EngineSettings) -> Any:
    folder = locate(settings, with_weights=False).folder
    return read_config(folder, trust_remote_code=settings.trust_remote_code)


def _longest(settings: EngineSettings, facts: ServerFacts) -> int | None:
    limits = [one for one in (positions_of(settings), facts.longest) if one is not None]
    return min(limits) - 1 if limits else None


def _version(facts: ServerFacts) -> str:
    return f"vllm {facts.release} over http"


class Server:
    """What the engines of one server share: its requests, its folder, and the ends of the model's files."""

    def __init__(self, settings: EngineSettings, target: Target, facts: ServerFacts, config: Any) -> None:
        self.settings = settings
        self.target = target
        self.facts = facts
        self.longest = _longest(settings, facts)
        self.config = config
        self.asking = Asking(settings.openai, facts.served_model)
        self.proof: Mapping[str, str] = {}
        self._head: TargetHead | None = None
        self._closed = False
        self._threads = ThreadPoolExecutor(settings.openai.concurrency, thread_name_prefix="server")

    def open(self) -> None:
        """Prove what can be; raises `EngineError` with what does not hold."""
        try:
            head: TargetHead | None = self.head()
            without = ""
        except OpeningError as error:
            head, without = None, error.problems[0].message if error.problems else error.headline
        self.proof = prove(self.asking, self.settings, self.target, head, without)

    def head(self) -> TargetHead:
        """Return the ends of the model; raises `OpeningError` where its files do not tell them."""
        if self._head is None:
            folder = locate(self.settings, with_weights=True).folder
            self._head = TargetHead(folder, self.config, self.settings.dtype)
        return self._head

    def check_ends(self, layers: ServerLayers) -> None:
        """Raise `OpeningError` where the model's files do not give what `layers` makes of them."""
        table = partial(table_problem, self.config)
        if problems := rows_problems(table, embed=layers.embed_beside, norm=layers.normed):
            raise OpeningError("the model's files do not give what the server does not", problems)
        if layers.embed_beside or layers.normed:
            self.head()

    def embed_from(self) -> str:
        """Return where `embed` comes from, whether or not it is asked for."""
        alone = Schema.declare(self.target, [EMBED], self.settings.dtype)
        found = server_layers(self.settings, alone, self.facts.release, self.config)
        if not isinstance(found, ServerLayers):
            return "nowhere"
        return (
            "rows of the embedding table in the model's files" if found.embed_beside else "the server's slot"
        )

    def send(self, sample: NDArray[np.int32], with_argmax: bool) -> "Future[Told]":
        """Queue a request; at most `concurrency` are under way."""
        self.check_open()
        return self._threads.submit(self.asking.ask, sample, with_argmax=with_argmax)

    def check_open(self) -> None:
        """Raise `EngineError` once the server was let go."""
        if self._closed:
            raise EngineError("the engine is closed")

    def close(self) -> None:
        """Let the requests under way end, and remove the files that nobody asked for."""
        if self._closed:
            return
        self._closed = True
        self._threads.shutdown(cancel_futures=True)
        self.asking.close()
        if self._head is not None:
            self._head.close()


class ServerEngine:
    """Hands out the tensors of one schema; see `datagen.engines.base.Engine`."""

    def __init__(self, server: Server, schema: Schema, layers: ServerLayers) -> None:
        self._server = server
        self._schema = schema
        self._layers = layers

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(
            name="openai",
            version=_version(self._server.facts),
            dtype=self._server.settings.dtype,
            device="a server's",
            extra={
                **self._server.proof,
                "embed": self._server.embed_from(),
                "assumed": in_words(self._layers.assumed),
            },
        )

    @property
    def target(self) -> Target:
        return self._server.target

    @property
    def schema(self) -> Schema:
        return self._schema

    def submit(self, batch: Sequence[Sequence[int]], *, with_argmax: bool = False) -> "Sent":
        self._server.check_open()
        samples = checked(batch, self.target.vocab_size, self._server.longest)
        under_way = [self._server.send(sample, with_argmax) for sample in samples]
        return Sent(self, samples, under_way)

    def handing_out(self, schema: Schema) -> Engine:
        server = self._server
        if problems := schema_problems(schema, server.target, server.settings.dtype):
            raise OpeningError("the schema is not of the model that is loaded", problems)
        layers = server_layers(server.settings, schema, server.facts.release, server.config)
        if not isinstance(layers, ServerLayers):
            raise OpeningError("the server does not capture these tensors", layers)
        server.check_ends(layers)
        return ServerEngine(server, schema, layers)

    def head_argmax(self, final: NDArray[np.generic]) -> NDArray[np.int32]:
        return self._server.head().choose(self._checked(final))

    def head_ties(self, final: NDArray[np.generic]) -> NDArray[np.bool_]:
        return self._server.head().ties(self._checked(final))

    def _checked(self, final: NDArray[np.generic]) -> Tensor:
        self._server.check_open()
        expected = NUMPY_DTYPES[self._server.settings.dtype]
        width = self.target.hidden_size
        if final.ndim != 2 or final.shape[1] != width or final.dtype != expected:
            raise EngineError(
                f"final: expected {expected} [T, {width}], got {final.dtype} {list(final.shape)}"
            )
        return self._torch(final)

    def close(self) -> None:
        self._server.close()

    def capture_of(self, sample: NDArray[np.int32], told: Told) -> Capture:
        """Return the tensors of the schema out of what the server stored."""
        rows: dict[str, Tensor] = {
            name: told.states[:, slot].contiguous() for name, slot in self._layers.slots.items()
        }
        if self._layers.embed_beside:
            rows[EMBED] = self._server.head().embed(sample)
        if self._layers.normed:
            rows[FINAL_NORMED] = self._server.head().norm(
                told.states[:, self._layers.final_slot].contiguous()
            )
        dtype = NUMPY_DTYPES[self._server.settings.dtype]
        names = self._schema.names
        return Capture(
            token_ids=told.token_ids,
            tensors={name: _bits(rows[name]).view(dtype) for name in names},
            norms={
                name: torch.linalg.vector_norm(rows[name], dim=-1, dtype=torch.float32).numpy()
                for name in names
            },
            argmax=told.argmax,
        )

    def _torch(self, rows: NDArray[np.generic]) -> Tensor:
        bits = np.ascontiguousarray(rows).view(np.dtype(f"i{rows.dtype.itemsize}"))
        return torch.from_numpy(bits.copy()).view(TORCH_DTYPES[self._server.settings.dtype])


class Sent:
    """Requests that are under way."""

    def __init__(
        self, engine: ServerEngine, samples: Sequence[NDArray[np.int32]], under_way: "Sequence[Future[Told]]"
    ) -> None:
        self._engine = engine
        self._samples = samples
        self._under_way = under_way

    def result(self) -> Sequence[Capture]:
        """Wait for all of them, so that every file is read and removed; raises the errors of all as one."""
        problems: list[Problem] = []
        told: list[Told] = []
        for index, one in enumerate(self._under_way):
            try:
                told.append(one.result())
            except EngineError as error:
                found = error.problems or (Problem(where="", kind="server", message=error.headline),)
                problems += [
                    problem.model_copy(update={"where": f"sample {index}: {problem.where}"})
                    for problem in found
                ]
        if problems:
            raise EngineError("the server did not give the states of the batch", problems)
        return [self._engine.capture_of(sample, one) for sample, one in zip(self._samples, told, strict=True)]


def _bits(rows: Tensor) -> NDArray[Any]:
    """Return the memory of rows as an array of a dtype that numpy has."""
    return (rows.view(torch.uint16) if rows.dtype == torch.bfloat16 else rows).numpy()
