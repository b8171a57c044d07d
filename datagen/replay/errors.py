"""Every error of replay.

StrataError
 +-- ReplayError            what was asked cannot be replayed
      +-- CheckpointError   a draft's folder is not one whole draft that is understood
"""

from schemas.errors import StrataError


class ReplayError(StrataError):
    """States, wiring or models do not fit one another; `problems` names each misfit."""


class CheckpointError(ReplayError):
    """A draft's folder is not one whole draft that is understood; `problems` names all that is wrong."""
