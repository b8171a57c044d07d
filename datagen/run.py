"""`python -m datagen.run`: the same as `strata run`, which is how `ray job submit` starts it.

The command is loaded in the guard's hands: loading takes seconds, and Ctrl-C in them is no traceback.
"""

import sys
from importlib.metadata import EntryPoint

from schemas.command import guarded, loaded

RUN = EntryPoint("run", "datagen.commands.run:command", "strata.commands")

if __name__ == "__main__":
    sys.exit(guarded(lambda words: loaded(RUN)(words), sys.argv[1:]))
