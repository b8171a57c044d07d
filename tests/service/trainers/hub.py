"""A hub on this machine: huggingface_hub's own client lays out its cache from what is served here."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from huggingface_hub import constants, hf_hub_download

MODEL = "owner/name"


class Hub:
    """One model's files at one commit; what is asked of it is cached in `cache`."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.url = ""
        self.commit = ""
        self.files: dict[str, bytes] = {}

    def commits(self, number: int, files: Mapping[str, bytes]) -> None:
        """Let `main` be another commit."""
        self.commit, self.files = f"{number:040x}", dict(files)

    def fetched(self, *names: str) -> str:
        """Have files of `main` in the cache, and return the commit."""
        for name in names:
            hf_hub_download(MODEL, name, cache_dir=self.cache, endpoint=self.url)
        return self.commit


@contextmanager
def serving_hub(cache: Path, patch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Serve a hub, and let its cache be the one of this process."""
    hub = Hub(cache)

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            data = hub.files.get(self.path.rpartition("/")[2])
            self.send_response(200 if data is not None else 404)
            data = data or b""
            self.send_header("ETag", json.dumps(sha256(data).hexdigest()))
            self.send_header("X-Repo-Commit", hub.commit)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    patch.setattr(constants, "HF_HUB_CACHE", str(cache))
    patch.setattr(constants, "HF_HUB_OFFLINE", False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
