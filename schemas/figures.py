"""Counts as people read them: bytes and durations in words."""


def human_bytes(count: float) -> str:
    """Return a count of bytes as people write it.

    >>> human_bytes(1234567890)
    '1.23 GB'
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} PB"


def human_seconds(seconds: float) -> str:
    """Return a duration as people write it.

    >>> human_seconds(93784), human_seconds(0.7)
    ('1 d 2 h', '0.7 s')
    """
    if 0.05 <= seconds < 9.95:
        return f"{seconds:.1f} s"
    seconds = round(seconds)
    for size, unit, next_size, next_unit in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            rest = seconds % size // next_size
            return f"{seconds // size} {unit}" + (f" {rest} {next_unit}" if rest else "")
    return f"{seconds} s"
