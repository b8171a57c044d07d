"""A double of a vLLM server with its hidden-state connector: real states of a tiny model, HTTP, files, locks.

It speaks the few routes that the engine `openai` asks, as vLLM 0.32 does, and breaks on demand.
"""

import fcntl
import json
import os
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import save_file

from datagen.engines.base import Engine
from datagen.engines.opening import open_engine, read_target
from datagen.engines.settings import EngineSettings
from schemas.boundary import name_of
from schemas.schema import Schema

Fault = Literal[
    "429",
    "500",
    "400",
    "drop",
    "cut",
    "foreign",
    "shortened",
    "slow_lock",
    "held_lock",
    "no_lock",
    "no_file",
    "outside",
    "no_path",
    "late",
]

PATIENCE_SECONDS = 60.0


class Quiet(ThreadingHTTPServer):
    """Says nothing of clients that went away: a worker that is killed does."""

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@dataclass
class StateServer:
    """Serves the model of `settings` (engine hf), capturing `ids`; `faults` are used up, one a completion."""

    settings: EngineSettings
    shared: Path
    ids: tuple[int, ...]
    version: str = "0.32.0"
    name: str = "the-model"
    longest: int = 128
    faults: "deque[Fault | None]" = field(default_factory=deque)
    requests: list[dict[str, Any]] = field(default_factory=list)
    most_under_way: int = 0
    meeting: threading.Barrier | None = None
    """Where each request waits for others, so that how many are under way is not left to the clock."""
    _under_way: int = 0

    def __enter__(self) -> "StateServer":
        target = read_target(self.settings)
        names = [name_of(one, target.n_layers) for one in self.ids]
        schema = Schema.declare(target, names, self.settings.dtype)
        self.engine: Engine = open_engine(self.settings, schema)
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._writing: list[threading.Thread] = []
        double = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                double.get(self)

            def do_POST(self) -> None:
                double.post(self)

            def log_message(self, *arguments: object) -> None:
                pass

        self._http = Quiet(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        self.release()
        self.engine.close()

    def release(self) -> None:
        """Let what is held (`held_lock`, `late`) go on, and wait until it is written."""
        self._released.set()
        for one in self._writing:
            one.join()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def get(self, handler: BaseHTTPRequestHandler) -> None:
        if handler.path == "/version":
            answer(handler, 200, {"version": self.version})
        elif handler.path == "/v1/models":
            model = {"id": self.name, "root": "/models/m", "max_model_len": self.longest, "parent": None}
            answer(handler, 200, {"object": "list", "data": [model]})
        else:
            answer(handler, 404, {"error": {"message": "Not Found"}})

    def post(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self._lock:
            self.requests.append({**body, "authorization": handler.headers.get("Authorization")})
            fault = self.faults.popleft() if self.faults else None
            self._under_way += 1
            self.most_under_way = max(self.most_under_way, self._under_way)
        try:
            if self.meeting is not None:
                self.meeting.wait()
            self._complete(handler, body, fault)
        finally:
            with self._lock:
                self._under_way -= 1

    def _complete(self, handler: BaseHTTPRequestHandler, body: dict[str, Any], fault: Fault | None) -> None:
        if fault in ("429", "500", "400"):
            answer(handler, int(fault), {"error": {"message": f"told to say {fault}"}})
            return
        if fault == "drop":
            handler.close_connection = True
            handler.connection.close()
            return
        prompt = body["prompt"]
        with self._lock:
            (capture,) = self.engine.submit([prompt], with_argmax=True).result()
        assert capture.argmax is not None
        states = torch.stack([tensor_of(capture.tensors[name]) for name in self.engine.schema.names], dim=1)
        path = self.shared / f"cmpl-{body['request_id']}-0-ab12cd34.safetensors"
        self._write(path, states, prompt, fault)
        if fault == "late":
            self._released.wait(PATIENCE_SECONDS)
        told = {"outside": f"/elsewhere/{path.name}", "no_path": None}.get(str(fault), str(path))
        ranked = [{str(int(one)): {"rank": 1, "logprob": -1.0}} for one in capture.argmax[:-1]]
        choice = {
            "index": 0,
            "text": "",
            "token_ids": [int(capture.argmax[-1])],
            "prompt_token_ids": prompt,
            "prompt_logprobs": [None, *ranked] if body.get("prompt_logprobs") else None,
        }
        content = {"choices": [choice], "kv_transfer_params": told and {"hidden_states_path": told}}
        answer(handler, 200, content)

    def _write(self, path: Path, states: torch.Tensor, prompt: list[int], fault: Fault | None) -> None:
        lock = os.open(f"{path}.lock", os.O_CREAT | os.O_WRONLY, 0o644)
        fcntl.flock(lock, fcntl.LOCK_EX)
        ids = [*prompt[1:], prompt[0]] if fault == "foreign" else prompt
        rows = states[1:].clone() if fault == "shortened" else states

        def write() -> None:
            if fault == "slow_lock":
                time.sleep(0.2)
            if fault == "held_lock":
                self._released.wait(PATIENCE_SECONDS)
            if fault != "no_file":
                tensors = {"hidden_states": rows.contiguous(), "token_ids": torch.tensor(ids)}
                save_file(tensors, path)
            if fault == "cut":
                os.truncate(path, path.stat().st_size // 2)
            if fault == "no_lock":
                os.unlink(f"{path}.lock")
            os.close(lock)

        if fault in ("slow_lock", "held_lock"):
            thread = threading.Thread(target=write)
            self._writing.append(thread)
            thread.start()
        else:
            write()


def tensor_of(rows: "np.ndarray[Any, Any]") -> torch.Tensor:
    if rows.dtype.name == "bfloat16":
        return torch.from_numpy(rows.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(rows.copy())


def answer(handler: BaseHTTPRequestHandler, status: int, content: object) -> None:
    raw = json.dumps(content).encode()
    try:
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(raw)))
        handler.end_headers()
        handler.wfile.write(raw)
    except (BrokenPipeError, ConnectionResetError):
        handler.close_connection = True  # the client has given up
