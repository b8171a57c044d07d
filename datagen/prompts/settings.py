"""Which prompts a run reads, and what it keeps of them."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

Format = Literal["auto", "messages", "sharegpt", "prompt", "tokens"]
TooLong = Literal["truncate", "quarantine"]


class PromptSettings(BaseModel):
    """Which prompts a run reads, and what it keeps of them.

    All but `path`, `split` and `limit` decide the content of a dataset.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str | tuple[str, ...] = Field(
        description="files (.jsonl, .json, .parquet), folders of them, globs, folders saved by datasets' "
        "save_to_disk, or hub ids as hf://owner/name[@revision]"
    )
    format: Format = Field(default="auto", description="auto: told by the fields of each record")
    split: str | None = Field(default=None, description="of a HF dataset that has several")
    limit: PositiveInt | None = Field(default=None, description="read only the first records")
    max_tokens: PositiveInt = Field(default=4096, description="tokens of a sample at most")
    on_too_long: TooLong = Field(default="truncate", description="what becomes of a longer one")
    min_trained_tokens: PositiveInt = Field(
        default=1, description="a sample with fewer tokens under its loss mask is quarantined"
    )
    conversation_id_field: str | None = Field(
        default=None, description="empty: conversation_id, else id, else a hash of the first user turn"
    )
    system_prompt: str | None = Field(default=None, description="for conversations without a system turn")
    template_options: dict[str, str | bool | int | float] = Field(
        default_factory=dict, description="variables handed to the chat template, as enable_thinking"
    )
    keep_text: bool = Field(default=True, description="keep the messages beside the tokens, as provenance")

    @property
    def paths(self) -> tuple[str, ...]:
        """`path` as a list, whichever way it was written."""
        return (self.path,) if isinstance(self.path, str) else self.path
