"""Records in files: parquet, csv, json (one object a line) and arrow; globs and folders."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import escape, glob
from pathlib import Path

import duckdb
import pyarrow as pa
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from abs_audit.carry import carried, types_of
from abs_audit.families import Family, Type
from abs_audit.streams import streamed
from abs_audit.textfiles import csv_batches, csv_columns, json_batches, json_columns, text_schema
from abs_core.errors import AbsError, DataError, OptionError, SchemaError, UnavailableError

FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".ndjson": "json",
    ".jsonl": "json",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
COMPRESSIONS = frozenset({".gz", ".zst", ".bz2"})


@dataclass(frozen=True, slots=True)
class Files:
    """Files of one format, as one set of records.

    Folders are searched to any depth; names that start with ``_`` or ``.`` are left out, as Spark
    does. The set of files is found anew for every read. CSV and JSON have no types: their values
    take the other side's. CSV: a header line, commas, RFC 4180 quotes; an empty field is NULL and a
    quoted empty one is empty text. Values in the names of folders (``month=1``) are not read, nor
    are manifests: a folder that Spark's own file sink wrote may hold files that its log disowns.

    Args:
        paths: files, folders or glob patterns.
        null: the text that stands for NULL in CSV, besides an empty field.
    """

    paths: tuple[str, ...]
    null: str | None = None

    @property
    def name(self) -> str:
        return ", ".join(self.paths)

    def columns(self, connection: DuckDBPyConnection) -> Mapping[str, Type]:
        kind, found = self._found()
        with self._mapped(duckdb.DatabaseError):
            if kind == "csv":
                return dict.fromkeys(csv_columns(found), Type(Family.UNTYPED))
            if kind == "json":
                return dict.fromkeys(json_columns(connection, found), Type(Family.UNTYPED))
            with _typed(connection, kind, found) as rows:
                return types_of(rows, self.name)

    @contextlib.contextmanager
    def rows(
        self, connection: DuckDBPyConnection, names: Sequence[str]
    ) -> Iterator[DuckDBPyRelation]:
        kind, found = self._found()
        with self._mapped():
            if kind == "csv":
                batches = csv_batches(found, names, self.null)
                with streamed(connection, text_schema(names), batches) as rows:
                    yield rows
            elif kind == "json":
                with streamed(connection, text_schema(names), json_batches(found, names)) as rows:
                    yield rows
            else:
                with _typed(connection, kind, found) as rows:
                    yield carried(rows, names)

    def _found(self) -> tuple[str, list[Path]]:
        """The format and the files, in a stable order."""
        found = sorted({path for text in self.paths for path in _expand(text)})
        kinds = {_format(path) for path in found}
        if not found:
            raise OptionError(
                f"{self.name}: there is no file to read.", remedy="correct the path or pattern."
            )
        if len(kinds) > 1:
            raise OptionError(
                f"{self.name}: files of several formats: {', '.join(sorted(kinds))}.",
                remedy="name files of one format.",
            )
        return kinds.pop(), found

    @contextlib.contextmanager
    def _mapped(self, *also_damaged: type[Exception]) -> Iterator[None]:
        damaged: tuple[type[Exception], ...] = (ValueError, NotImplementedError, *also_damaged)
        try:
            yield
        except AbsError:
            raise
        except (OSError, duckdb.IOException) as error:
            raise UnavailableError(
                f"{self.name} cannot be read: {error}", remedy="look at the file and its rights."
            ) from error
        except damaged as error:
            raise DataError(
                f"{self.name} is damaged, or not of the format its name says: {error}",
                remedy="write it again, or give it the right name.",
            ) from error


@contextlib.contextmanager
def _typed(
    connection: DuckDBPyConnection, kind: str, found: list[Path]
) -> Iterator[DuckDBPyRelation]:
    if kind == "parquet":
        # By name: columns of later files that the first does not have must not be passed over.
        yield connection.read_parquet(
            [escape(str(path)) for path in found], union_by_name=True, hive_partitioning=False
        )
    else:
        schema = _arrow_schema(found[0])
        with streamed(connection, schema, _arrow_batches(found, schema.names)) as rows:
            yield rows


def _arrow_schema(path: Path) -> pa.Schema:
    with _arrow_reader(path) as reader:
        return reader.schema


def _arrow_batches(found: list[Path], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for path in found:
        with _arrow_reader(path) as reader:
            if set(reader.schema.names) != set(names):
                raise SchemaError(
                    f"{path} has other columns than {found[0]}.", remedy="audit them apart."
                )
            batches = (
                reader
                if isinstance(reader, pa.RecordBatchReader)
                else map(reader.get_batch, range(reader.num_record_batches))
            )
            for batch in batches:
                yield batch.select(names)


def _arrow_reader(path: Path) -> pa.RecordBatchReader | pa.ipc.RecordBatchFileReader:
    """Of an IPC file (it begins with the magic bytes) or an IPC stream."""
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"
    source = pa.memory_map(str(path))
    return pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)


def _expand(text: str) -> list[Path]:
    given = Path(text)
    if given.exists():
        return _files_of(given)
    # Path.glob takes no absolute pattern.
    matches = [Path(match) for match in glob(text, recursive=True)]  # noqa: PTH207
    return [path for m in matches if not _hidden(m, given.parts) for path in _files_of(m)]


def _files_of(root: Path) -> list[Path]:
    if not root.is_dir():
        return [root]
    return [p for p in root.rglob("*") if p.is_file() and not _hidden(p, root.parts)]


def _hidden(path: Path, named: Sequence[str]) -> bool:
    """A part of the path is hidden, and not one that the user named."""
    return any(part.startswith(("_", ".")) and part not in named for part in path.parts)


def _format(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    known = FORMATS.get(suffixes[-1]) if suffixes else None
    if known is None:
        raise OptionError(
            f"{path}: the format of this file is not known.",
            remedy=f"give files that end in {', '.join(FORMATS)}.",
        )
    return known
