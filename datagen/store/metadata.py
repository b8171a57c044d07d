"""The `zarr.json` of a part's group and arrays, Zarr v3, as bytes.

Hidden tensors are one uncompressed shard each, small arrays one uncompressed chunk each; what is declared
here is what `shard.py` and `part.py` write.
Source: the Zarr v3 core specification, its sharding codec 1.0, and the registered data type `bfloat16`.
"""

from schemas.record import canonical_json
from schemas.records import BLOCK_ROWS
from schemas.schema import ITEM_BYTES

_LITTLE: dict[str, object] = {"name": "bytes", "configuration": {"endian": "little"}}
_BYTES: dict[str, object] = {"name": "bytes"}
_CRC32C: dict[str, object] = {"name": "crc32c"}


def group_json() -> bytes:
    """Return the metadata of a part's group."""
    return canonical_json({"zarr_format": 3, "node_type": "group", "attributes": {}})


def tensor_json(n_rows: int, width: int, dtype: str) -> bytes:
    """Return the metadata of a `[n_rows, width]` tensor in one shard; its key is `c/0/0`."""
    sharding: dict[str, object] = {
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": [BLOCK_ROWS, width],
            "codecs": [_LITTLE],
            "index_codecs": [_LITTLE, _CRC32C],
            "index_location": "end",
        },
    }
    shard_shape = [-(-n_rows // BLOCK_ROWS) * BLOCK_ROWS, width]
    return _array([n_rows, width], shard_shape, dtype, [sharding], ["token", "hidden"])


def column_json(n_values: int, dtype: str, axis: str) -> bytes:
    """Return the metadata of a `[n_values]` array in one chunk with its crc32c; its key is `c/0`."""
    to_bytes = _LITTLE if ITEM_BYTES[dtype] > 1 else _BYTES
    return _array([n_values], [n_values], dtype, [to_bytes, _CRC32C], [axis])


def _array(
    shape: list[int], chunk_shape: list[int], dtype: str, codecs: list[dict[str, object]], axes: list[str]
) -> bytes:
    is_float = dtype in ("bfloat16", "float16", "float32")
    return canonical_json(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": shape,
            "data_type": dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk_shape}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0.0 if is_float else 0,
            "codecs": codecs,
            "dimension_names": axes,
            "attributes": {},
        }
    )
