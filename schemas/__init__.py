"""What data *is*: names, boundaries, schemas, records and the checks on them.

Pure values: the standard library and pydantic only. Nothing here reads a file, a model or the network,
and importing it loads neither numpy, torch, ray nor zarr.
"""
