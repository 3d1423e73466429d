"""Dataset rows by index, without keeping the rows in memory."""

from __future__ import annotations

import hashlib
import json
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import NamedTuple

from buffer.prompts.files import DatasetError, Record, files_of, records, source_of
from buffer.prompts.record import difficulties, read_row
from buffer.prompts.row import BadRow, Columns, Row

__all__ = ["Dataset", "DatasetError", "FileCounts", "NoUsableRow", "RowHead", "Skipped", "read_dataset"]

_IN_MEMORY_BYTES = 64 << 20


class NoUsableRow(DatasetError):
    """Every row was skipped; the message counts the reasons, ``dataset`` has them by row."""

    def __init__(self, message: str, dataset: Dataset) -> None:
        super().__init__(message)
        self.dataset = dataset


class Skipped(NamedTuple):
    """A row that cannot be used. row: its number in its file, from 0; blank lines do not count."""

    file: Path
    row: int
    reason: str


@dataclass(slots=True)
class FileCounts:
    """How one file was read. forms: usable rows by the form of their record (``forms.FORMS``).

    columns: usable rows by the columns that their problem is made of; the others are its extra. set_aside:
    unusable rows by reason.
    """

    file: Path
    forms: Counter[str] = field(default_factory=Counter)
    columns: Counter[tuple[str, ...]] = field(default_factory=Counter)
    set_aside: Counter[str] = field(default_factory=Counter)

    @property
    def form(self) -> str:
        """The form of most of its rows; "" if none is usable."""
        return next((name for name, _ in self.forms.most_common(1)), "")

    @property
    def rows(self) -> int:
        """Number of usable rows."""
        return self.forms.total()


@dataclass(frozen=True, slots=True)
class RowHead:
    """What is kept of each row in memory."""

    index: int
    data_source: str
    pass_rate: float | None


class Dataset:
    """Usable rows by index. Thread-safe; rows live in an unnamed temporary file (in memory below 64 MiB)."""

    def __init__(self) -> None:
        self.heads: list[RowHead] = []
        self.files: list[FileCounts] = []
        self.skipped: list[Skipped] = []
        self.abilities: set[str] = set()
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115 - lives as long as self
        self._offsets: dict[int, tuple[int, int]] = {}  # index -> (offset, bytes)
        self._known: dict[bytes, tuple[int, int]] = {}  # digest of the content -> the same
        self._end = 0
        self._hash = hashlib.blake2b(digest_size=16)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.heads)

    def __iter__(self) -> Iterator[Row]:
        return (self[head.index] for head in self.heads)

    def __getitem__(self, index: int) -> Row:
        """Return the row with this index; raises KeyError if it was skipped or never existed."""
        start, length = self._offsets[index]
        with self._lock:
            self._file.seek(start)
            body = self._file.read(length)
        return Row(index=index, **json.loads(body))

    @property
    def digest(self) -> str:
        """Hex digest of the usable rows and their indices: equal digests, equal datasets."""
        return self._hash.hexdigest()

    def summary(self) -> str:
        """Return one line for people: how many rows, and how many were set aside for which reason."""
        first = {skip.reason: skip for skip in reversed(self.skipped)}
        counts = sum((file.set_aside for file in self.files), Counter[str]())
        reasons = [
            f"{number} x {reason} (first: row {first[reason].row} of {first[reason].file.name})"
            for reason, number in counts.most_common()
        ]
        return "; ".join([f"{len(self)} rows, {len(self.skipped)} set aside", *reasons])

    def set_aside(self, number: int, reason: str) -> None:
        """Record that a row of the newest of ``files`` cannot be used."""
        self.skipped.append(Skipped(self.files[-1].file, number, reason))
        self.files[-1].set_aside[reason] += 1

    def refuse_set_aside(self, most: float) -> None:
        """Raise DatasetError for a file of which more than this share is set aside."""
        for counts in self.files:
            aside = counts.set_aside.total()
            if aside > most * (counts.rows + aside):
                reasons = "; ".join(f"{number} x {why}" for why, number in counts.set_aside.most_common())
                raise DatasetError(
                    f"{counts.file}: {aside} of {counts.rows + aside} rows are set aside: {reasons}; correct "
                    f"them (magicrl data check), or allow more than a share of {most} with data.allow_skipped"
                )

    def add(self, row: Row) -> None:
        """Append a row of the newest of ``files``, with a new index; rows of equal content are kept once."""
        self.files[-1].forms[row.form] += 1
        self.abilities.add(row.ability)
        record = asdict(row)
        del record["index"]
        body = json.dumps(record, default=str).encode()
        digest = hashlib.blake2b(body, digest_size=16).digest()
        self._hash.update(row.index.to_bytes(8) + digest)
        if digest not in self._known:
            self._file.write(body)
            self._known[digest] = (self._end, len(body))
            self._end += len(body)
        self._offsets[row.index] = self._known[digest]
        self.heads.append(RowHead(row.index, row.data_source, row.pass_rate))


def read_dataset(paths: Path | Sequence[Path], columns: Columns | None = None) -> Dataset:
    """Read files, or folders of them, in order; a file listed twice counts twice.

    Raises DatasetError for a file that is missing, unreadable or of an unknown kind, and for a
    ``columns.model`` that no row names; NoUsableRow if every row was set aside.
    """
    columns = columns or Columns()
    files = [file for path in ([paths] if isinstance(paths, Path) else paths) for file in files_of(path)]
    dataset, models, index = Dataset(), set[str](), count()
    for file in files:
        dataset.files.append(FileCounts(file))
        for number, record in records(file):
            try:
                row, used = _row(record, next(index), file, columns)
            except BadRow as bad:
                dataset.set_aside(number, str(bad))
            else:
                dataset.add(row)
                dataset.files[-1].columns[used] += 1
                models.update(difficulties(row.extra))
    names = ", ".join(map(str, files))
    if not len(dataset):
        raise NoUsableRow(f"{names}: no usable row: {dataset.summary()}; a row needs {columns}", dataset)
    if columns.model is not None and columns.model not in models:
        known = ", ".join(sorted(models)) or "none"
        raise DatasetError(
            f"{names}: no row has a model_difficulty for {columns.model!r}; models there: {known}"
        )
    return dataset


def _row(record: Record, index: int, file: Path, columns: Columns) -> tuple[Row, tuple[str, ...]]:
    """Return the row of a record, and the columns that are not in its extra. Raises BadRow."""
    if isinstance(record, BadRow):
        raise record
    row = read_row(record, index, source_of(file), columns)
    return row, tuple(name for name, value in record.items() if value is not None and name not in row.extra)
