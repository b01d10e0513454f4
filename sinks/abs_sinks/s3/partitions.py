"""Splits batches by the columns of ``partitionby`` and names the folders, as Hive and Spark do.

One difference: a moment is written in UTC and ends in Z, and not as the clock of the session's zone,
which shows the same time twice in autumn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.arrow import cast_plain, plain_type, type_name
from abs_core.errors import SchemaError
from abs_sinks.text import plain_text

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""Folder value of NULL and the empty text (ExternalCatalogUtils.DEFAULT_PARTITION_NAME).

A text of these characters is written with an escape: readers compare before they undo escapes.
"""

_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")


class Partitioning:
    """Splits batches of one schema by the columns ``names``.

    Args:
        labels: of the folders, where the partitions' values are noted elsewhere: then NULL and the
            empty text have folders of their own. Default: the names.

    Raises:
        SchemaError: a column's type has no text that reads back, or two columns have one name.
    """

    def __init__(
        self, schema: pa.Schema, names: Sequence[str], labels: Sequence[str] | None = None
    ) -> None:
        if len(set(schema.names)) < len(schema.names):
            raise SchemaError("Two columns have one name.", remedy="rename one of them in Spark.")
        self._names = tuple(names)
        self._labels = self._names if labels is None else tuple(labels)
        self._empty = NULL_FOLDER if labels is None else ""
        self._inside = [name for name in schema.names if name not in self._names]
        self.file_schema = pa.schema([schema.field(name) for name in self._inside])
        for name, label in zip(self._names, self._labels, strict=True):
            _check_type(label, schema.field(name).type)

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield each folder (ends in a slash, or is empty) with its rows in order, all columns."""
        if not self._names:
            yield "", batch
            return
        codes = self._codes(batch)
        order = np.argsort(codes, kind="stable")
        sorted_codes = codes[order]
        starts = np.flatnonzero(np.r_[True, sorted_codes[1:] != sorted_codes[:-1]])
        ends = np.r_[starts[1:], len(order)]
        heads = batch.select(list(self._names)).take(pa.array(order[starts]))
        for folder, start, end in zip(self._folders(heads), starts, ends, strict=True):
            # ``take``: a slice would keep the whole batch in memory.
            yield folder, batch.take(pa.array(order[start:end]))

    def inside(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows without the folders' columns."""
        return rows.select(self._inside) if self._names else rows

    def values(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The folder's values: one row, of rows of one folder."""
        return rows.select(list(self._names)).take(pa.array([0]))

    def _codes(self, batch: pa.RecordBatch) -> np.ndarray:
        """A number for each row, equal where all values are."""
        codes = np.zeros(batch.num_rows, np.int64)
        for name in self._names:
            indices = batch.column(name).dictionary_encode(null_encoding="encode").indices
            column = indices.to_numpy(zero_copy_only=False).astype(np.int64)
            # Made dense each time, so that the product never overflows.
            codes = np.unique(
                codes * (int(column.max(initial=0)) + 1) + column, return_inverse=True
            )[1]
        return codes

    def _folders(self, heads: pa.RecordBatch) -> list[str]:
        texts = [
            _texts(heads.column(name), label, self._empty)
            for name, label in zip(self._names, self._labels, strict=True)
        ]
        return [
            "".join(f"{_escape(n)}={v}/" for n, v in zip(self._labels, values, strict=True))
            for values in zip(*texts, strict=True)
        ]


def _texts(column: pa.Array, name: str, empty: str) -> list[str]:
    values = plain_text(cast_plain(column, plain_type(column.type)), name)
    if pa.types.is_timestamp(column.type):
        # Moments say that they are in UTC: readers take text without it for the time of some zone.
        values = pc.replace_substring_regex(values, r"\.?0+(Z?)$", r"\1")
        if column.type.tz is None:
            values = pc.replace_substring(values, "T", " ")  # Spark's form
    return [
        NULL_FOLDER if value is None else _escape(value) if value else empty
        for value in values.to_pylist()
    ]


def _escape(text: str) -> str:
    if text == NULL_FOLDER:
        return f"%{ord(text[0]):02X}{text[1:]}"
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _check_type(name: str, kind: pa.DataType) -> None:
    fits = (
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal(kind)
    )
    if not fits:
        raise SchemaError(
            f"The option partitionby names {name}, of type {type_name(kind)}, which cannot be "
            f"used as a "
            "folder name.",
            remedy="take a column of integers, text, booleans, dates, timestamps or decimals.",
        )
