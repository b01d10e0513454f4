"""Opens files by format: their schema, and a reader for the rest of a piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa

from abs_core.errors import SchemaError
from abs_sources.files.columnar import (
    Progress,
    Rest,
    Step,
    arrow_schema_of,
    parquet_schema,
    read_arrow,
    read_parquet,
)
from abs_sources.files.consent import naming_ways_out
from abs_sources.files.folders import FolderColumns, with_folders
from abs_sources.files.lines import codec_of, read_csv, read_json, read_text
from abs_sources.files.model import OpenFile, Piece, Pin, Store
from abs_sources.files.options import FileOptions

TEXT = pa.schema([pa.field("value", pa.string())])
_WHOLE = {"parquet", "arrow"}


def is_divisible(options: FileOptions, name: str) -> bool:
    """Whether reading can begin in the middle of the file of this name."""
    return options.fileformat in _WHOLE or codec_of(name) is None


def stored_schema(options: FileOptions, store: Store, pins: Sequence[Pin]) -> pa.Schema:
    """The schema in the first file; SchemaError if the format has none, or without a file."""
    if options.fileformat == "text":
        return TEXT
    reads = {"parquet": parquet_schema, "arrow": arrow_schema_of}.get(options.fileformat)
    if reads is None or not pins:
        why = "there is no file yet" if reads else f"{options.fileformat} files do not hold one"
        raise SchemaError(
            f"The schema of {options.path.name} is not known: {why}.",
            remedy='give it, for instance by .schema("id bigint, word string").',
        )
    opened = store.open(pins[0])
    try:
        return with_folders(reads(opened.content, store.name(pins[0].path)), pins[0].path)
    finally:
        opened.close()


class FileReader:
    """Reads the rest of one piece of one file; ``log`` is the id of the stream's log, if any."""

    def __init__(
        self,
        options: FileOptions,
        store: Store,
        log: str | None,
        schema: pa.Schema,
        piece: Piece,
        at: Progress,
    ) -> None:
        self.at = at
        self._telling = partial(naming_ways_out, log, store, piece.pin, begun=at is not None)
        name = store.name(piece.pin.path)
        most = options.batchsize if options.fileformat in _WHOLE else options.chunk
        with self._telling():
            self._folders = FolderColumns(schema, piece.pin.path, name, options.zone)
            self._file: OpenFile = store.open(piece.pin)
        inside = self._folders.inside
        self._steps = _steps(options, Rest(self._file.content, piece, at, inside, most, name))

    def read(self) -> pa.RecordBatch | None:
        """The next batch; None at the end of the piece.

        Raises ReplayMismatchError if the file is not the pinned one.
        """
        with self._telling():
            try:
                batch, at = next(self._steps, (None, self.at))
            except Exception:
                self._file.check()  # a file that changed while it was read looks damaged
                raise
            self._file.check()
        self.at = at
        return None if batch is None else self._folders.add(batch)

    def close(self) -> None:
        self._file.close()


def _steps(options: FileOptions, rest: Rest) -> Iterator[Step]:
    if rest.piece.pin.size == 0 and options.fileformat not in _WHOLE:
        return iter(())
    if options.fileformat == "csv":
        return read_csv(rest, options.csv)
    return _READ[options.fileformat](rest)


_READ: dict[str, Callable[[Rest], Iterator[Step]]] = {
    "parquet": read_parquet,
    "arrow": read_arrow,
    "json": read_json,
    "text": read_text,
}
