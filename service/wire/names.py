"""What is written in requests and responses: header names, media types, the spellings of a query."""

from typing import Literal, get_args

DATASET_HEADER = "Strata-Dataset"
VERSION_HEADER = "Strata-Version"
SCHEMA_HEADER = "Strata-Schema"
"""The schema's fingerprint: a request says which it means, every response of a version says its own."""

WIRING_HEADER = "Strata-Wiring"
"""A request's wiring as canonical JSON, which is ASCII."""

REQUEST_ID_HEADER = "X-Request-Id"

DTYPE_HEADER = "Strata-DType"
"""Of a raw tensor, the schema's word: `bfloat16`."""

SHAPE_HEADER = "Strata-Shape"
"""Of a raw tensor, comma-separated: `300,7168`."""

CRC32C_HEADER = "Strata-Crc32c"
"""Of a raw tensor's whole body, as `crc32c_text` writes it."""

SAFETENSORS_TYPE = "application/x-safetensors"
RAW_TYPE = "application/octet-stream"
PROBLEM_TYPE = "application/problem+json"

TensorFormat = Literal["safetensors", "raw"]
TENSOR_FORMATS: tuple[TensorFormat, ...] = get_args(TensorFormat)
MEDIA_TYPES: dict[TensorFormat, str] = {"safetensors": SAFETENSORS_TYPE, "raw": RAW_TYPE}

OFFSETS = "offsets"
"""Int64 `[n + 1]` beside several samples' tensors: sample `i` has rows `offsets[i]` to `offsets[i + 1]`."""

SAMPLE_IDS = "sample_ids"
"""Uint8 `[n, 32]` beside several samples' tensors: the bytes of each id, in the order asked for."""


def names_of(text: str) -> tuple[str, ...]:
    """Return the tensors that a query's `names` asks for.

    >>> names_of("layer3,final")
    ('layer3', 'final')
    """
    return tuple(text.split(","))


def names_text(names: tuple[str, ...] | list[str]) -> str:
    """Return names as a query's `names` writes them."""
    return ",".join(names)


def crc32c_text(value: int) -> str:
    """Return a checksum as headers and metadata write it.

    >>> crc32c_text(0x1f)
    '0x0000001f'
    """
    return f"{value:#010x}"


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape as a header writes it.

    >>> shape_text((300, 7168))
    '300,7168'
    """
    return ",".join(str(length) for length in shape)
