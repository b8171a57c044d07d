"""A window of a sample's tokens as a query writes it: `128:512`; an end may be left out, none is negative."""

import re

_WINDOW = re.compile(r"([0-9]{0,10}):([0-9]{0,10})")


def window_from(text: str) -> slice:
    """Return the window that a query's `tokens` asks for; an end that is left out is the sample's.

    Raises `ValueError` for what is no window, or an empty one. Whether it lies within the sample is known
    where the sample is.

    >>> window_from("128:512"), window_from(":64")
    (slice(128, 512, None), slice(None, 64, None))
    """
    found = _WINDOW.fullmatch(text)
    if found is None:
        raise ValueError(f"expected tokens as FIRST:END, such as 128:512, got {text[:40]!r}")
    first, end = (int(piece) if piece else None for piece in found.groups())
    if end is not None and (first or 0) >= end:
        raise ValueError(f"expected at least one token, got {text!r}")
    return slice(first, end)


def window_text(window: slice) -> str:
    """Return a window as a query's `tokens` writes it; raises `ValueError` for one that it cannot write.

    >>> window_text(slice(128, 512)), window_text(slice(None, 64))
    ('128:512', ':64')
    """
    if window.step not in (None, 1):
        raise ValueError(f"expected a window of consecutive tokens, got {window}")
    text = ":".join("" if end is None else str(end) for end in (window.start, window.stop))
    window_from(text)
    return text
