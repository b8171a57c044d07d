"""Drafts by speculators' own trainer on the demo's states, one a wiring, kept under `data/replay-proof`.

Each list is some 700 MB and is removed when its draft is there.
"""

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console

from datagen.engines.target_head import TargetHead
from deploy.demo.incident.environment import make_environment
from deploy.demo.incident.exporting import export_right
from deploy.demo.incident.positional import write_list
from deploy.demo.incident.states import States, make_states
from deploy.demo.incident.training import Course, Trained, train
from deploy.demo.model import MODEL
from deploy.demo.registry import DATA
from tests.replay_proof.wirings import Wiring

PLACE = DATA / "replay-proof"
RIGHT = DATA / "incident" / "right"
STEPS = 96
"""Of about 115 that an epoch has: minutes for a draft on two quiet cores."""
AT_ONCE = 2


def make_drafts(wirings: Sequence[Wiring], console: Console) -> tuple[States, dict[str, Trained]]:
    """Return the states, and a draft for each wiring, trained where it is not there yet."""
    states = make_states()
    course = Course(STEPS, export_right(states, RIGHT), steps_deep=1)
    environment = make_environment()
    head = TargetHead.of(MODEL)

    def make(wiring: Wiring) -> Trained:
        place = PLACE / f"draft-{wiring.name}-{course}"
        listed = PLACE / f"list-{wiring.name}"
        if not place.exists():
            console.print(f"training {wiring.name}: {STEPS} steps")
            write_list(
                states.dataset, RIGHT, listed, wiring.names, lambda tensors: wiring.slots(tensors, head.norm)
            )
        trained = train(listed, place, course, environment)
        shutil.rmtree(listed, ignore_errors=True)
        return trained

    with ThreadPoolExecutor(AT_ONCE) as pool:
        made = list(pool.map(make, wirings))
    return states, {wiring.name: draft for wiring, draft in zip(wirings, made, strict=True)}
