"""Files of other libraries become a dataset: looked at, proven against the target, written in parts."""
