"""`python -m service`: the same as `strata serve`."""

import sys
from importlib.metadata import EntryPoint

from schemas.command import guarded, loaded

SERVE = EntryPoint("serve", "service.commands.serve:command", "strata.commands")

if __name__ == "__main__":
    sys.exit(guarded(lambda words: loaded(SERVE)(words), sys.argv[1:]))
