"""The client that trainers keep: numpy, a crc32c library, the standard library; torch only in its stream."""
