"""Values of a stranger's file in a message: short whatever their size, and never a failure of its own."""

import reprlib

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 80
_REPR.maxlevel = 3
_LARGEST = 10**18


def shown(value: object) -> str:
    """Return a value as it stands in a message.

    >>> shown([1, "two"]), shown(10**5000)
    ("[1, 'two']", 'an integer of 16610 bits')
    """
    if isinstance(value, int) and abs(value) > _LARGEST:
        return f"an integer of {value.bit_length()} bits"
    try:
        return _REPR.repr(value)
    except ValueError:
        # Python refuses to write integers of more than 4300 digits, here one inside a list or an object.
        return f"a {type(value).__name__} with a huge integer"


def listed_names(names: list[str], limit: int = 5) -> str:
    """Return the first names and how many more there are.

    >>> listed_names(["a", "b", "c"], limit=2)
    'a, b and 1 more'
    """
    more = len(names) - limit
    first = ", ".join(shown(name)[1:-1] for name in names[:limit])
    return first + (f" and {more} more" if more > 0 else "")
