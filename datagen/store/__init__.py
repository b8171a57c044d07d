"""The dataset on disk or in a bucket: write a part, commit a version, read a sample, verify.

numpy, zarr, pyarrow, obstore and a crc32c library: no torch, no ray, no fastapi.
"""
