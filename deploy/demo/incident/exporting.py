"""The export that both drafts begin with: the demo's states as speculators reads them, by name."""

from pathlib import Path

from datagen.commands.export import run
from datagen.export.exporting import Asked, plan_export
from deploy.demo.incident.states import States

MEANT = ("layer2", "layer15", "layer27")
SPLITS = ("train", "validation")


def export_right(states: States, place: Path) -> float:
    """Write the export at `place` when it is not there yet; return the share of its rows for training."""
    plan = plan_export(Asked(states.dataset, "speculators", place, MEANT, None, SPLITS))
    run(plan, workers=2)
    # Half a row more: the trainer rounds the share down.
    return (plan.n_train + 0.5) / len(plan.rows)
