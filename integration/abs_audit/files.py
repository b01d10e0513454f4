"""Records in files (parquet, csv, json lines, arrow), found by paths, globs and folders."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from glob import escape, glob, has_magic
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import duckdb
import pyarrow as pa
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from abs_audit.carry import carried, types_of
from abs_audit.contracts import PLACE, Relation
from abs_audit.families import Family, Type
from abs_audit.progress import streamed
from abs_audit.textfiles import csv_batches, csv_columns, json_batches, json_columns, text_schema
from abs_clients.hidden import is_hidden
from abs_core.durable import disk_error
from abs_core.errors import AbsError, DataError, OptionError, SchemaError, UnavailableError

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""Stands for NULL (Spark's ExternalCatalogUtils.DEFAULT_PARTITION_NAME)."""

Folders = Mapping[str, str | None]


def folders_of(parts: Iterable[str]) -> dict[str, str | None]:
    """The partition columns in a file's folder names, ``day=2026-11-20/``, as Spark writes them."""
    pairs = [part.split("=", 1) for part in parts if "=" in part[1:]]
    return {
        unquote(name): None if value == NULL_FOLDER else unquote(value) for name, value in pairs
    }


def common_names(folders: Iterable[Folders]) -> tuple[str, ...]:
    """The columns that every file's folders have; there is a file."""
    first, *others = folders
    return tuple(name for name in first if all(name in other for other in others))


def with_folders(
    batches: Iterable[pa.RecordBatch],
    names: Sequence[str],
    folders: Folders,
    outside: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """The columns ``names`` of one file: those ``outside`` from its folders, the others its own."""
    for batch in batches:
        columns = [
            pa.array([folders[name]] * batch.num_rows, pa.string())
            if name in outside
            else batch.column(name)
            for name in names
        ]
        yield pa.RecordBatch.from_arrays(columns, names=list(names))


class Copy(NamedTuple):
    """Of a file that is read from a copy: its name for people, and its columns of folders."""

    name: str
    folders: Folders


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
class Files(Relation):
    """Files of one format, as one set of records.

    Folders are searched recursively; hidden names (``_x``, ``.x``, not ``_x=1``) are skipped, as in
    Spark. The files are listed anew for every read. CSV and JSON have no types: their values take the
    other side's. CSV has a header line, commas and RFC 4180 quotes; an empty field is NULL and a
    quoted empty one is empty text. Values in folder names (``month=1``) below the given path are
    untyped columns, if each file has them and no file has a column of that name. Manifests are not
    read: a folder of Spark's own file sink may hold files that its log does not list.

    Args:
        paths: files, folders or glob patterns.
        null: the text for NULL in CSV, besides an empty field.
        copies: those of the files that are copies.
        known_as: what people know the paths as, if all are.
    """

    paths: tuple[str, ...]
    null: str | None = None
    copies: Mapping[Path, Copy] = field(default_factory=dict, hash=False)
    known_as: str | None = None

    @property
    def name(self) -> str:
        return self.known_as or ", ".join(self.paths)

    def columns(self, connection: DuckDBPyConnection) -> Mapping[str, Type]:
        with self._mapped(duckdb.DatabaseError):
            kind, files = self._found()
            inside = self._inside(connection, kind, files)
        outside = (n for n in common_names(files.values()) if n not in inside and n != PLACE)
        return {**inside, **{name: Type(Family.UNTYPED, folder=True) for name in outside}}

    def _inside(
        self, connection: DuckDBPyConnection, kind: str, files: Mapping[Path, Folders]
    ) -> dict[str, Type]:
        """The columns stored in the files themselves."""
        if kind == "csv":
            return dict.fromkeys(csv_columns(files), Type(Family.UNTYPED))
        if kind == "json":
            return dict.fromkeys(json_columns(connection, files), Type(Family.UNTYPED))
        with _typed(connection, kind, files, ()) as rows:
            return types_of(rows, self.name)

    @contextlib.contextmanager
    def rows(
        self, connection: DuckDBPyConnection, names: Sequence[str]
    ) -> Iterator[DuckDBPyRelation]:
        with self._mapped():
            kind, files = self._found()
            outside = [name for name in names if name in common_names(files.values())]
            if outside:
                inside = self._inside(connection, kind, files)
                outside = [name for name in outside if name not in inside]
            if kind in ("csv", "json"):
                batches = self._texts(kind, files, names, outside)
                with streamed(connection, text_schema(names), batches) as rows:
                    yield rows
            else:
                with _typed(connection, kind, files, outside) as rows:
                    yield carried(rows, names)

    def _texts(
        self, kind: str, files: Mapping[Path, Folders], names: Sequence[str], outside: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """The records of CSV and JSON files; the columns ``outside`` come from the folders."""
        inner = [name for name in names if name not in outside]
        for path, folders in files.items():
            if kind == "csv":
                batches = csv_batches(path, inner, self.null)
            else:
                batches = json_batches(path, inner, str(folders[PLACE]))
            yield from batches if not outside else with_folders(batches, names, folders, outside)

    def _found(self) -> tuple[str, dict[Path, Folders]]:
        """The format and the files, in a stable order, with the columns of their folders."""
        by_text = {text: dict(_expand(text)) for text in self.paths}
        # One that is misspelt or gone must not be passed over beside others.
        gone = [t for t, files in by_text.items() if not files and not Path(t).exists()]
        if gone:
            raise OptionError(
                f"{', '.join(gone)}: there is no file to read.",
                remedy="correct the path or pattern.",
            )
        every = {path: folders for files in by_text.values() for path, folders in files.items()}
        # The place is one more column that is not in the file itself.
        found: dict[Path, Folders] = {
            path: {**copy.folders, PLACE: copy.name}
            for path, folders in sorted(every.items())
            for copy in [self.copies.get(path) or Copy(str(path), folders)]
        }
        kinds = {_format(str(folders[PLACE])) for folders in found.values()}
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
        damaged: tuple[type[Exception], ...] = (
            OSError,
            ValueError,
            NotImplementedError,
            *also_damaged,
        )
        try:
            yield
        except AbsError:
            raise
        except duckdb.IOException as error:
            raise UnavailableError(
                f"{self.name} cannot be read: {error}", remedy="check the file and its permissions."
            ) from error
        except damaged as error:
            if isinstance(error, OSError) and error.errno is not None:  # Arrow's own have no number
                raise disk_error(error, self.name, right="read") from error
            raise DataError(
                f"{self.name} is damaged, or does not have the format that its name says: {error}",
                remedy="write it again, or correct its name.",
            ) from error


@contextlib.contextmanager
def _typed(
    connection: DuckDBPyConnection,
    kind: str,
    by_path: Mapping[Path, Folders],
    outside: Sequence[str],
) -> Iterator[DuckDBPyRelation]:
    """The records of typed files, and the columns ``outside`` from their folders, as text."""
    if kind == "parquet":
        # By name: columns of later files that the first does not have must not be passed over.
        files = ", ".join(map(_literal, by_path))
        rows = connection.sql(
            f"from read_parquet([{files}], union_by_name = true, hive_partitioning = false, "
            f"filename = {repr(_FILE) if outside else False})"
        )
        yield _joined(connection, rows, by_path, outside) if outside else rows
        return
    first = next(iter(by_path))
    with _arrow_reader(first) as reader:
        inside = reader.schema
    schema = pa.schema([*inside, *text_schema(outside)])
    batches = (
        batch
        for path, folders in by_path.items()
        for batch in with_folders(
            _arrow_batches(path, first, inside.names), schema.names, folders, outside
        )
    )
    with streamed(connection, schema, batches) as rows:
        yield rows


_FILE = "abs_audit_file"


def _literal(path: Path) -> str:
    """The file's name as an SQL literal, with pattern characters escaped."""
    return "'" + escape(str(path)).replace("'", "''") + "'"


def _joined(
    connection: DuckDBPyConnection,
    rows: DuckDBPyRelation,
    by_path: Mapping[Path, Folders],
    outside: Sequence[str],
) -> DuckDBPyRelation:
    values = {name: [folders[name] for folders in by_path.values()] for name in outside}
    schema = pa.schema([(_FILE, pa.string()), *text_schema(outside)])
    beside = pa.table({_FILE: [str(path) for path in by_path], **values}, schema=schema)
    return rows.join(connection.from_arrow(beside), _FILE)


def _arrow_batches(path: Path, first: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with _arrow_reader(path) as reader:
        if set(reader.schema.names) != set(names):
            raise SchemaError(
                f"{path} has other columns than {first}.", remedy="audit them separately."
            )
        batches = (
            reader
            if isinstance(reader, pa.RecordBatchReader)
            else map(reader.get_batch, range(reader.num_record_batches))
        )
        for batch in batches:
            yield batch.select(names)


def _arrow_reader(path: Path) -> pa.RecordBatchReader | pa.ipc.RecordBatchFileReader:
    """Reader of an Arrow IPC file (by its magic bytes) or IPC stream."""
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"
    source = pa.memory_map(str(path))
    return pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)


def _expand(text: str) -> list[tuple[Path, Folders]]:
    """The files of a path or pattern, each with the columns of the folders below it."""
    pattern = Path(text)
    if pattern.exists():
        matches, prefix = [pattern], pattern.parts
    else:
        # Path.glob takes no absolute pattern.
        matches = [Path(match) for match in glob(text, recursive=True)]  # noqa: PTH207
        matches = [match for match in matches if not _hidden(match, pattern.parts)]
        magic = (number for number, part in enumerate(pattern.parts) if has_magic(part))
        prefix = pattern.parts[: next(magic, None)]
    files = [path for match in matches for path in _files_of(match)]
    return [(path, folders_of(path.parts[len(prefix) : -1])) for path in files]


def _files_of(root: Path) -> list[Path]:
    if not root.is_dir():
        return [root]

    def refuse(error: OSError) -> None:  # a folder that may not be listed is not passed over
        raise error

    walked = os.walk(root, onerror=refuse)
    files = [Path(folder, name) for folder, _, names in walked for name in names]
    return [p for p in files if p.is_file() and not _hidden(p, root.parts)]


def _hidden(path: Path, named: Sequence[str]) -> bool:
    """Whether a part of the path is hidden and was not named by the user."""
    return any(is_hidden(part) and part not in named for part in path.parts)


def endings(name: str) -> list[str]:
    """The parts of a file's name that tell its format, and its compression after it."""
    *_, before, last = ["", "", *Path(name).suffixes]
    if last.lower() in FORMATS:
        return [last]
    packed = last.lower() in COMPRESSIONS and before.lower() in FORMATS
    return [before, last] if packed else []


def _format(name: str) -> str:
    format_ = next((FORMATS.get(ending.lower()) for ending in endings(name)), None)
    if format_ is None:
        raise OptionError(
            f"{name}: the format of this file is unknown.",
            remedy=f"use files that end in {', '.join(FORMATS)}.",
        )
    return format_
