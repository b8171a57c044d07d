"""Student's t, for intervals over few conversations: what the normal says of them is far too narrow.

For whole degrees of freedom its distribution is a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4).
"""

from functools import cache
from math import atan, cos, pi, sin, sqrt, tan

_HALVINGS = 100


def share_within(reach: float, freedom: int) -> float:
    """Return how likely t lies between `-reach` and `reach`, with so many degrees of freedom.

    >>> round(share_within(4.032, 5), 4)
    0.99
    """
    return _share(atan(reach / sqrt(freedom)), freedom)


@cache
def reach_of(share: float, freedom: int) -> float:
    """Return how far from 0 t lies with the likelihood `share`, in [0, 1); raises `ValueError` otherwise.

    >>> round(reach_of(0.99, 5), 3), round(reach_of(0.99, 1), 2)
    (4.032, 63.66)
    """
    if not (0 <= share < 1 and freedom >= 1):
        raise ValueError(f"expected a share in [0, 1) and a degree of freedom, got {share} and {freedom}")
    low, high = 0.0, pi / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _share(middle, freedom) < share:
            low = middle
        else:
            high = middle
    return tan(low) * sqrt(freedom)


def _share(angle: float, freedom: int) -> float:
    """Return the share within `tan(angle) * sqrt(freedom)`."""
    square = cos(angle) ** 2
    if freedom % 2:
        total, term = angle, sin(angle) * cos(angle)
        for k in range(1, freedom // 2 + 1):
            total += term
            term *= square * 2 * k / (2 * k + 1)
        return 2 * total / pi
    total, term = 0.0, sin(angle)
    for k in range(1, freedom // 2 + 1):
        total += term
        term *= square * (2 * k - 1) / (2 * k)
    return total
