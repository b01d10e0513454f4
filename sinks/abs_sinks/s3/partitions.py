"""Splits batches by the columns of ``partitionby`` and names the folders, as Hive and Spark do.

One difference: a moment is written in UTC and ends in Z, and not as the clock of the session's zone,
which shows the same time twice in autumn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.arrow import cast_plain, plain_type, taken, type_name
from abs_core.errors import SchemaError
from abs_sinks.refusals import BadValuesError, check_utf8, converting
from abs_sinks.text import plain_text

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""Folder value of NULL and the empty text (ExternalCatalogUtils.DEFAULT_PARTITION_NAME).

A text of these characters is written with an escape: readers compare before they undo escapes.
"""

_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")


class Folders(Protocol):
    """The names of folders.

    Attributes:
        labels: of the columns.
    """

    @property
    def labels(self) -> Sequence[str]: ...

    def texts(self, place: int, values: pa.Array) -> list[str | None]:
        """Of plain values of one column; None: the folder of NULL. Different values differ.

        Raises:
            BadValuesError: of the values.
        """
        ...


class Partitioning:
    """Splits batches of one schema by the columns ``names``.

    Args:
        folders: their names, where the partitions' values are noted elsewhere: then NULL and the empty
            text have folders of their own. Default: those of Hive and Spark.

    Raises:
        SchemaError: a column's type has no text that reads back, or two columns have one name.
    """

    def __init__(
        self, schema: pa.Schema, names: Sequence[str], folders: Folders | None = None
    ) -> None:
        if len(set(schema.names)) < len(schema.names):
            raise SchemaError("Two columns have one name.", remedy="rename one of them in Spark.")
        self._names = tuple(names)
        self._folders = folders or _Columns(self._names)
        self._inside = [name for name in schema.names if name not in self._names]
        self.file_schema = pa.schema([schema.field(name) for name in self._inside])
        if folders is None:
            for name in self._names:
                _check_type(name, schema.field(name).type)

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield each folder (ends in a slash, or is empty) with its rows in order, all columns.

        Raises:
            BadValuesError: of the batch's rows: a text is no UTF-8, or a year has not four digits.
        """
        if not self._names:
            yield "", batch
            return
        columns = list(map(self._plain, map(batch.column, self._names), self._names))
        codes = self._codes(columns)
        order = np.argsort(codes, kind="stable")
        sorted_codes = codes[order]
        starts = np.flatnonzero(np.r_[True, sorted_codes[1:] != sorted_codes[:-1]])
        ends = np.r_[starts[1:], len(order)]
        heads = [column.take(pa.array(order[starts])) for column in columns]
        try:
            paths = self._paths(heads)
        except BadValuesError as error:
            if error.rows is not None:  # of ``heads``; each stands for all rows of its folder
                error.rows = np.sort(
                    np.concatenate([order[starts[head] : ends[head]] for head in error.rows])
                )
            raise
        for folder, start, end in zip(paths, starts, ends, strict=True):
            # ``take``: a slice would keep the whole batch in memory.
            yield folder, taken(batch, pa.array(order[start:end]))

    def inside(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows without the folders' columns."""
        return rows.select(self._inside) if self._names else rows

    def values(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The folder's values: one row, of rows of one folder."""
        return taken(rows.select(list(self._names)), pa.array([0]))

    @staticmethod
    def _plain(column: pa.Array, name: str) -> pa.Array:
        plain = plain_type(column.type)
        with converting(name, type_name(plain)):
            return cast_plain(column, plain)

    def _codes(self, columns: Sequence[pa.Array]) -> np.ndarray:
        """A number for each row, equal where all values are."""
        codes = np.zeros(len(columns[0]), np.int64)
        for values in columns:
            indices = values.dictionary_encode(null_encoding="encode").indices
            column = indices.to_numpy(zero_copy_only=False).astype(np.int64)
            # Made dense each time, so that the product never overflows.
            codes = np.unique(
                codes * (int(column.max(initial=0)) + 1) + column, return_inverse=True
            )[1]
        return codes

    def _paths(self, heads: Sequence[pa.Array]) -> list[str]:
        labels = [_escape(label) for label in self._folders.labels]
        texts = [
            [
                NULL_FOLDER if text is None else _escape(text)
                for text in self._folders.texts(n, column)
            ]
            for n, column in enumerate(heads)
        ]
        return [
            "".join(f"{label}={text}/" for label, text in zip(labels, values, strict=True))
            for values in zip(*texts, strict=True)
        ]


class _Columns:
    """Folders as Hive and Spark name them. See ``Folders``."""

    def __init__(self, names: Sequence[str]) -> None:
        self.labels = names

    def texts(self, place: int, values: pa.Array) -> list[str | None]:
        kind, name = values.type, self.labels[place]
        if pa.types.is_string(kind):
            check_utf8(values, name)
        texts = plain_text(values, name)
        if pa.types.is_timestamp(kind):
            # Moments say that they are in UTC: readers take text without it for the time of some zone.
            texts = pc.replace_substring_regex(texts, r"\.?0+(Z?)$", r"\1")
            if kind.tz is None:
                texts = pc.replace_substring(texts, "T", " ")  # Spark's form
        return [text or None for text in texts.to_pylist()]


def _escape(text: str) -> str:
    if text == NULL_FOLDER:
        return f"%{ord(text[0]):02X}{text[1:]}"
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


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
