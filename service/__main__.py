"""`python -m service`: the same as `strata serve`."""

import sys

from schemas.command import guarded
from service.commands.serve import command

if __name__ == "__main__":
    sys.exit(guarded(command, sys.argv[1:]))
