"""Partition columns in folder names, ``day=2026-11-20/``, as Hive and Spark write them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import unquote

import pyarrow as pa

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""Stands for NULL (Spark's ExternalCatalogUtils.DEFAULT_PARTITION_NAME)."""

Folders = Mapping[str, str | None]


def folders_of(parts: Iterable[str]) -> dict[str, str | None]:
    """Columns and text values in the folder names of one file."""
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
