"""The bytes of an answer: planned, read in checked pieces, and sent while the next is read."""
