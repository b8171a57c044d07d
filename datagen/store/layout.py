"""Where everything of a dataset lies: the one place that spells keys.

Keys are relative to the root and made of checked names and digests, never of a user's free text.
"""

from datagen.store.errors import NotFoundError
from schemas.reference import name_problems, version_name_problems

LATEST = "latest"
DATASET = "dataset.json"
PART_RECORD = "part.json"
SAMPLES = "samples.parquet"
GROUP = "data.zarr"


class Layout:
    """The keys of one dataset.

    >>> Layout("demo").version(12)
    'demo/versions/00000012.json'
    """

    def __init__(self, dataset: str) -> None:
        problems = name_problems(dataset)
        if problems:
            raise NotFoundError(f"no dataset can be called {dataset!r}", problems)
        self.name = dataset
        self.dataset = f"{dataset}/{DATASET}"
        self.latest = f"{dataset}/{LATEST}"
        self.parts = f"{dataset}/parts"
        self.runs = f"{dataset}/runs"
        self.names = f"{dataset}/names"

    def schema(self, fingerprint: str) -> str:
        """Return the key of a declared schema."""
        return f"{self.name}/schemas/{fingerprint}.json"

    def final_norm(self, fingerprint: str) -> str:
        """Return the key of the norm of a schema's target, kept by whoever could read the model."""
        return f"{self.name}/final_norms/{fingerprint}.json"

    def version(self, number: int) -> str:
        """Return the key of a version record."""
        return f"{self.name}/versions/{number:08d}.json"

    def version_name(self, name: str) -> str:
        """Return the key of a version's name; raises `NotFoundError` when no version can be called so."""
        problems = version_name_problems(name)
        if problems:
            raise NotFoundError(f"no version can be called {name!r}", problems)
        return f"{self.names}/{name}.json"

    def index(self, sha256: str) -> str:
        """Return the key of an index file."""
        return f"{self.name}/index/{sha256}.parquet"

    def quarantine(self, sha256: str) -> str:
        """Return the key of a quarantine file."""
        return f"{self.name}/quarantine/{sha256}.parquet"

    def part(self, part_id: str) -> str:
        """Return the folder of a part."""
        return f"{self.parts}/{part_id}"

    def part_record(self, part_id: str) -> str:
        """Return the key of a part's record, which is written last."""
        return f"{self.part(part_id)}/{PART_RECORD}"

    def run_start(self, run_id: str) -> str:
        """Return the key of a run's start record."""
        return f"{self.runs}/{run_id}/start.json"

    def run_end(self, run_id: str) -> str:
        """Return the key of a run's end record."""
        return f"{self.runs}/{run_id}/end.json"

    def run_checks(self, run_id: str) -> str:
        """Return the key of what a run's content checks came to."""
        return f"{self.runs}/{run_id}/checks.json"

    def calibration(self, run_id: str) -> str:
        """Return the key of what an audit set was held against when a run made it."""
        return f"{self.runs}/{run_id}/calibration.json"
