"""What formats of one `torch.save` file a sample have in common: a name and a content a row."""

from collections.abc import Hashable, Iterator, Sequence

from datagen.adapters.exports.format import ExportFormat, PlannedFile, Row, Source
from datagen.adapters.exports.torch_files import TorchFile
from schemas.wiring import Wiring


class TorchFileFormat(ExportFormat):
    """A format that says what a row's file is called, and what it holds."""

    def names(self, rows: Sequence[Row]) -> list[str]:
        """Return the path of each row's file in the export, every one another."""
        raise NotImplementedError

    def content(self, row: Row, source: Source) -> object:
        """Return what the file holds, tensors as `LazyTensor`."""
        raise NotImplementedError

    def sized_by(self, row: Row) -> Hashable:
        """Return what the size of a row's file follows from: rows of which it is equal have equal sizes."""
        return row.location.n_tokens

    def planned(self, rows: Sequence[Row], source: Source) -> list[PlannedFile]:
        sizes: dict[Hashable, int] = {}
        planned = []
        for name, row in zip(self.names(rows), rows, strict=True):
            key = self.sized_by(row)
            if key not in sizes:
                sizes[key] = TorchFile(self.content(row, source)).size_bytes
            planned.append(PlannedFile(name, (row,), sizes[key]))
        return planned

    def pieces(self, file: PlannedFile, source: Source) -> Iterator[memoryview | bytes]:
        (row,) = file.rows
        yield from TorchFile(self.content(row, source)).pieces()


def target_of(wiring: Wiring) -> str:
    """Return the tensor that the draft learns from; raises `ValueError` for a trainer without one."""
    if wiring.target is None:
        raise ValueError(f"{wiring.title}: expected a target, since it is a trainer's wiring, got none")
    return wiring.target.tensor
