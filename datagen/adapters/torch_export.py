"""What formats of one `torch.save` file a sample have in common: a name and a content a row."""

from collections.abc import Iterator, Sequence

from datagen.adapters.exporting import ExportFormat, PlannedFile, Row, Source
from datagen.adapters.torch_files import TorchFile
from schemas.wiring import Wiring


class TorchFileFormat(ExportFormat):
    """A format that says what a row's file is called, and what it holds."""

    def names(self, rows: Sequence[Row]) -> list[str]:
        """Return the path of each row's file in the export, every one another."""
        raise NotImplementedError

    def content(self, row: Row, source: Source) -> object:
        """Return what the file holds, tensors as `LazyTensor`."""
        raise NotImplementedError

    def planned(self, rows: Sequence[Row], source: Source) -> list[PlannedFile]:
        return [
            PlannedFile(name, (row,), TorchFile(self.content(row, source)).size_bytes)
            for name, row in zip(self.names(rows), rows, strict=True)
        ]

    def pieces(self, file: PlannedFile, source: Source) -> Iterator[memoryview | bytes]:
        (row,) = file.rows
        yield from TorchFile(self.content(row, source)).pieces()


def target_of(wiring: Wiring) -> str:
    """Return the tensor that the draft learns from; raises `ValueError` for a trainer without one."""
    if wiring.target is None:
        raise ValueError(f"{wiring.title}: expected a target, since it is a trainer's wiring, got none")
    return wiring.target.tensor
