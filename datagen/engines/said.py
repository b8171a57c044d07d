"""What engines say of themselves beside name and version: kept in a run's record, and told in a line."""

from collections.abc import Mapping, Sequence

TRUSTED = "unproven"
"""What an engine calls the tensors that it takes on trust."""


def said_by(workers: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
    """Return what engines say of themselves, by name; where they differ, what each says.

    >>> said_by([{"class": "A", "device_map": "cuda:0"}, {"class": "A", "device_map": "cuda:1"}])
    {'class': 'A', 'device_map': 'cuda:0 | cuda:1'}
    """
    names = dict.fromkeys(name for one in workers for name in one)
    return {name: " | ".join(dict.fromkeys(one[name] for one in workers if name in one)) for name in names}


def in_a_line(said: Mapping[str, str]) -> str:
    """Return what an engine says of itself in a line; first what it takes on trust.

    >>> in_a_line({"embed": "the forward", "unproven": "layer1"})
    'unproven, so taken on trust: layer1; embed: the forward'
    """
    told = [f"{name}: {value}" for name, value in said.items() if name != TRUSTED]
    return "; ".join(
        [*([f"{TRUSTED}, so taken on trust: {said[TRUSTED]}"] if TRUSTED in said else []), *told]
    )
