"""Print what the oracle cannot run on a CPU, by name and with the reason."""

import sys

from tests.oracle.not_run import NOT_RUN


def main() -> None:
    """Print the table."""
    sys.stdout.write("\nnot run on a CPU:\n")
    for system, what, reason in NOT_RUN:
        sys.stdout.write(f"  {system}: {what}\n    {reason}\n")


if __name__ == "__main__":
    main()
