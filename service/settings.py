"""The service's settings: read once at the edge, and passed down as a value."""

from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.caller import Scope

ENV_PREFIX = "STRATA_SERVE_"


class Settings(BaseSettings):
    """Everything that can be set of a service."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True)

    root: str = Field(min_length=1, description="a folder, or s3://, gs://, az://")
    host: str = "127.0.0.1"
    port: int = Field(default=8350, ge=0, le=65535, description="0: any that is free")
    workers: PositiveInt = Field(default=1, description="processes")
    datasets: tuple[str, ...] | None = Field(
        default=None, description="serve only these; needed in a bucket, which nobody lists"
    )
    keys: Path | None = Field(default=None, description="the file of API keys: every caller then needs one")
    anonymous: Scope | None = Field(
        default=None, description="what a caller without a key may do; empty: on loopback everything"
    )
    max_response_bytes: PositiveInt = Field(default=2 << 30, description="of one response")
    max_request_bytes: PositiveInt = Field(default=4 << 20, description="of one request's body")
    max_bytes_in_flight: PositiveInt = Field(default=256 << 20, description="of buffers, in one process")
    max_batch_samples: PositiveInt = 4096
    requests_per_second: PositiveFloat | None = Field(default=None, description="a key; empty: no limit")
    bytes_per_second: PositiveFloat | None = Field(default=None, description="a key; empty: no limit")
    locations: Literal["auto", "on", "off"] = Field(
        default="auto", description="tell where bytes lie; auto: paths only on loopback"
    )
    presign_seconds: PositiveInt = Field(default=900, description="how long a presigned URL holds")
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return self.host in ("127.0.0.1", "::1", "localhost")
