"""Ask an application in this process, without a socket: for what is refused before anything is sent."""

import asyncio
from typing import Any

import httpx
from fastapi import FastAPI


class InProcess:
    """A client of `app`; it follows no redirect, and what the application raises is raised here."""

    def __init__(self, app: FastAPI, base_url: str = "http://service.example") -> None:
        self._app = app
        self._base_url = base_url

    def request(self, method: str, path: str, **given: Any) -> httpx.Response:
        """Return the whole response."""

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url=self._base_url) as client:
                return await client.request(method, path, **given)

        return asyncio.run(ask())

    def get(self, path: str, **given: Any) -> httpx.Response:
        """Return the whole response to a GET."""
        return self.request("GET", path, **given)
