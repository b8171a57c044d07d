"""`strata norm`: keep the target's final norm with a dataset that was made before norms were kept."""

import json
from collections.abc import Sequence

from datagen.kept_norm import keep_norm_of_model
from datagen.printing import printable
from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from schemas.command import Parser
from schemas.final_norm import derivable
from schemas.reference import parse_reference

PROG = "strata norm"
DESCRIPTION = """Keep the target's final norm with a dataset of its states. An export and the service's client
make final_normed of final by it, and `strata check` reckons with that.

A run keeps it by itself where the model's files can be read; this is for a dataset that was made otherwise.
The model's weights must be those that the states were made with."""


def command(arguments: Sequence[str]) -> int:
    """Keep the target's final norm with a dataset, so that final_normed can be made of final."""
    parser = Parser(prog=PROG, description=DESCRIPTION)
    parser.add_argument("--dataset", required=True, metavar="ROOT/DATASET[@V]", help="as data/demo")
    parser.add_argument(
        "--target-model", required=True, metavar="MODEL", help="the target: a folder or a hub id"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(list(arguments))
    reference = parse_reference(given.dataset)
    dataset = Dataset.open(open_door(reference.root), reference.dataset)
    schema = dataset.snapshot(reference.version).schema
    norm, is_new = keep_norm_of_model(dataset, schema, given.target_model)
    key = dataset.layout.final_norm(schema.fingerprint)
    made = derivable(schema, norm)
    if given.json:
        said = {"key": key, "is_new": is_new, "final_norm": norm.recipe._asdict(), "derivable": made}
        print(json.dumps(said))  # noqa: T201
        return 0
    done = "kept" if is_new else "is kept already"
    follows = f"; {', '.join(made)} can be asked for" if made else ""
    print(printable(f"{done}  {key}: {norm.recipe}{follows}"))  # noqa: T201
    return 0
