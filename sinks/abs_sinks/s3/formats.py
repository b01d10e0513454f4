"""Encoders of the file formats; they write batches to a file object with bounded memory.

JSON and CSV keep no types. NULL is ``null`` in JSON, and nothing in CSV, where the empty text is
``""``. Times are ISO text in UTC.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from abs_clients.arrow import cast_plain, plain_type, type_name
from abs_core.errors import SchemaError
from abs_sinks.jsontext import json_text, require_json
from abs_sinks.refusals import OF_VALUES, BadValuesError, Code, MisfitError, Reason, check_text
from abs_sinks.s3.options import S3Options
from abs_sinks.text import check_written, check_years, plain_text


class Encoder(Protocol):
    """Writes one file; ``close`` writes the rest and the format's end.

    ``metadata``: of the closed file, for a format that has some.
    """

    @property
    def metadata(self) -> Any: ...

    def write(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


class ParquetEncoder:
    """One row group for each table. Times in microseconds; format version 2.6.

    Fields of structs may be null in the file, also those that the input declares not null: under a
    struct that is null, Spark sends them as null, and Arrow's writer refuses that.
    """

    def __init__(self, out: Any, schema: pa.Schema, options: S3Options) -> None:
        fields = [field.with_type(_with_nullable_fields(field.type)) for field in schema]
        self._schema = pa.schema(fields, schema.metadata)
        self._open = partial(
            pq.ParquetWriter,
            out,
            self._schema,
            compression=options.compression,
        )
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        if not table.schema.equals(self._schema):  # Arrow 26 cuts lists of nulls in a cast
            table = table.cast(self._schema)
        if self._writer is None:
            self._writer = self._open(
                use_dictionary=_worth_a_dictionary(table), write_statistics=_with_statistics(table)
            )
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    @property
    def metadata(self) -> pq.FileMetaData:
        # Not by a collector: a writer that is dropped after a refused value has no metadata to collect.
        assert self._writer is not None
        return self._writer.writer.metadata

    def close(self) -> None:
        self._writer = self._writer or self._open()
        self._writer.close()


_SAMPLE_ROWS = 16_384
_DISTINCT_SHARE = 0.97
"""Share of distinct values in a sample; above it a dictionary outgrows Parquet's limit of 1 MiB."""


def _worth_a_dictionary(table: pa.Table) -> bool | list[str]:
    """The columns that Parquet encodes with a dictionary; True: all of them.

    A dictionary that outgrows its limit is given up, after it took as much time as all other encoding.
    So columns of values that hardly repeat get none. Short tables are not worth a look at the values;
    the leaves of nested columns have no names here.
    """
    kinds = table.schema.types
    if table.num_rows < _SAMPLE_ROWS or any(
        pa.types.is_nested(kind) or pa.types.is_null(kind) for kind in kinds
    ):
        return True
    sample = table.slice(0, _SAMPLE_ROWS)
    return [
        name
        for name in sample.column_names
        if pc.count_distinct(sample[name]).as_py() < _DISTINCT_SHARE * _SAMPLE_ROWS
    ]


_STATISTICS_BYTES = 4096
"""Arrow finds the least and the largest value of a column, and leaves out what is longer than this."""


def _with_statistics(table: pa.Table) -> bool | list[str]:
    """The columns that get statistics; True: all of them.

    Long values would be copied four times, and then be left out.
    """
    if any(pa.types.is_nested(kind) for kind in table.schema.types):
        return True
    most = _STATISTICS_BYTES * max(1, table.num_rows)
    return [name for name in table.column_names if table[name].nbytes <= most]


class ArrowEncoder:
    """Arrow IPC file format; one record batch for each table."""

    metadata = None

    def __init__(self, out: Any, schema: pa.Schema, options: S3Options) -> None:
        codec = None if options.compression == "none" else options.compression
        self._writer = pa.ipc.new_file(
            out, schema, options=pa.ipc.IpcWriteOptions(compression=codec)
        )

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table.combine_chunks())

    def close(self) -> None:
        self._writer.close()


class _TextEncoder:
    """The base of encoders of text, which may be compressed."""

    metadata = None

    def __init__(self, out: Any, schema: pa.Schema, options: S3Options) -> None:
        self._compressed = None
        if options.compression != "none":
            self._compressed = pa.CompressedOutputStream(
                pa.PythonFile(out, "w"), options.compression
            )
        self._out = self._compressed or out
        self._plain = pa.schema([field.with_type(plain_type(field.type)) for field in schema])

    def _plain_batches(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        for batch in table.to_batches():
            columns = map(cast_plain, batch.columns, self._plain.types)
            yield pa.RecordBatch.from_arrays(list(columns), schema=self._plain)

    def close(self) -> None:
        if self._compressed is not None:
            self._compressed.close()


class CsvEncoder(_TextEncoder):
    """RFC 4180 with commas; texts in quotes; a header line unless it is switched off.

    Moments are in UTC: in the session's zone they would lose the seconds of its offset, which New York
    had until 1883.
    """

    def __init__(self, out: Any, schema: pa.Schema, options: S3Options) -> None:
        super().__init__(out, schema, options)
        header = pcsv.WriteOptions(include_header=options.header)
        self._writer = pcsv.CSVWriter(self._out, self._plain, write_options=header)

    def write(self, table: pa.Table) -> None:
        for batch in self._plain_batches(table):
            for field, values in zip(batch.schema, batch.columns, strict=True):
                check_written(values, field.name)
            self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()
        super().close()


class JsonEncoder(_TextEncoder):
    """One object a line, in UTF-8; every field is there, NULL as null. Bytes are Base64, as Spark's."""

    def write(self, table: pa.Table) -> None:
        for batch in self._plain_batches(table):
            row = pa.StructArray.from_arrays(batch.columns, fields=list(self._plain))
            lines = pc.binary_join_element_wise(json_text(row, "", _spark_text), "\n", "")
            self._out.write(_content(lines))


_ENCODERS: dict[str, Callable[[Any, pa.Schema, S3Options], Encoder]] = {
    "parquet": ParquetEncoder,
    "arrow": ArrowEncoder,
    "csv": CsvEncoder,
    "json": JsonEncoder,
}


def encoder(out: Any, schema: pa.Schema, options: S3Options) -> Encoder:
    """An encoder of the option's format."""
    return _ENCODERS[options.fileformat](out, schema, options)


def check_schema(schema: pa.Schema, options: S3Options) -> None:
    """Raise ``SchemaError`` if the format cannot hold such columns."""
    for column in schema:
        try:
            if options.fileformat == "csv":
                _check_csv(column, header=options.header)
            elif options.fileformat == "json":
                require_json(plain_type(column.type))
                _check_json(plain_type(column.type))
        except MisfitError as error:
            raise SchemaError(
                f"The column {column.name} cannot be written as {options.fileformat}: {error.reason}.",
                remedy=f"take fileformat=parquet, or {error.remedy}.",
            ) from error
    if options.fileformat == "parquet":
        try:
            pq.ParquetWriter(pa.BufferOutputStream(), schema).close()
        except (pa.ArrowException, OSError) as error:  # OSError: a decimal of negative scale
            raise SchemaError(
                f"These columns cannot be written as Parquet: {error}.",
                remedy="cast or drop the column in Spark.",
            ) from error


@contextmanager
def encoding(options: S3Options) -> Iterator[None]:
    """Raise ``BadValuesError`` for a value that the format's library refuses."""
    try:
        yield
    except OF_VALUES:
        why, remedy = f"cannot be written as {options.fileformat}", "take another fileformat"
        # Arrow's text shows the value.
        raise BadValuesError(Reason(Code.NOT_CONVERTIBLE, "", why, remedy), None) from None


def doubtful(table: pa.Table, fileformat: str) -> list[str]:
    """The columns of which the format may refuse a value; the others need no trial."""
    types = pa.types
    fits = [types.is_integer, types.is_floating, types.is_boolean, types.is_decimal128]
    if fileformat in ("parquet", "arrow"):
        # Parquet has neither seconds nor days of milliseconds: its library's cast may overflow.
        fits += [types.is_string, types.is_binary, types.is_date32, _is_fine_timestamp]
    return [
        field.name
        for field, column in zip(table.schema, table.columns, strict=True)
        if not any(fit(field.type) for fit in fits) or (column.null_count and not field.nullable)
    ]


def _is_fine_timestamp(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit != "s")


def check_values(table: pa.Table, options: S3Options) -> None:
    """Raise ``BadValuesError`` if the format cannot hold a value.

    Only columns that are neither trusted nor seen to be plain are encoded for it: to encode all would
    double the work.
    """
    if names := to_try(table, options.fileformat):
        try_encoding(table.select(names), options)


def to_try(table: pa.Table, fileformat: str) -> list[str]:
    """The columns of which only a trial encoding tells whether the format can hold them."""
    names = doubtful(table, fileformat)
    return [name for name in names if not _is_plain(table.schema.field(name), table[name])]


def _is_plain(field: pa.Field, column: pa.ChunkedArray) -> bool:
    """Whether these are texts in UTF-8, or times of years of four digits: every format holds them."""
    plain = plain_type(field.type)
    is_text = pa.types.is_string(plain)
    is_time = pa.types.is_date32(plain) or pa.types.is_timestamp(plain)
    # Parquet's library does not write each type of time from a dictionary.
    as_it_is = not (pa.types.is_dictionary(field.type) or pa.types.is_run_end_encoded(field.type))
    if not ((is_text or is_time) and as_it_is) or (column.null_count and not field.nullable):
        return False
    try:
        for chunk in column.chunks:
            (check_text if is_text else check_years)(cast_plain(chunk, plain), field.name)
    except (BadValuesError, pa.ArrowException):
        return False
    return True


def try_encoding(table: pa.Table, options: S3Options) -> None:
    """Encode the rows, and drop the file; ``BadValuesError`` if the format cannot hold one."""
    with encoding(options):
        plain = replace(options, compression="none")
        made = encoder(pa.MockOutputStream(), table.schema, plain)
        made.write(table)
        made.close()


def _with_nullable_fields(kind: pa.DataType) -> pa.DataType:
    """The same type, in which each field of a struct may be null."""
    types = pa.types
    if types.is_struct(kind):
        fields = [field.with_type(_with_nullable_fields(field.type)) for field in kind]
        return pa.struct([field.with_nullable(True) for field in fields])
    if types.is_map(kind):
        item = kind.item_field.with_type(_with_nullable_fields(kind.item_type))
        return pa.map_(kind.key_field, item, kind.keys_sorted)
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_nullable_fields(kind.value_type)))
    return kind


def _check_csv(column: pa.Field, *, header: bool) -> None:
    plain = plain_type(column.type)
    if pa.types.is_nested(plain) or pa.types.is_binary(plain) or _is_span_or_time(plain):
        raise MisfitError(
            f"CSV has no form for values of type {type_name(column.type)}", "convert it in Spark"
        )
    if header and re.search(r"[\r\n]", column.name):
        raise MisfitError(
            "readers of CSV take a name with a line break for two lines",
            "rename the column, or set header=false",
        )


def _check_json(plain: pa.DataType) -> None:
    """Refuse what readers of JSON do not read back: intervals, times of day, keys that are no text."""
    if _is_span_or_time(plain):
        raise MisfitError(
            f"readers of JSON have no form for {type_name(plain)}", "cast it to STRING in Spark"
        )
    if pa.types.is_map(plain) and not pa.types.is_string(plain.key_type):
        raise MisfitError(
            f"in JSON a key is text, and readers do not turn it into {type_name(plain.key_type)}",
            "take strings as keys, or map_entries() in Spark",
        )
    for n in range(plain.num_fields):
        _check_json(plain.field(n).type)


def _is_span_or_time(plain: pa.DataType) -> bool:
    """Intervals and times of day, which Spark reads from neither JSON nor CSV."""
    types = pa.types
    return bool(types.is_interval(plain) or types.is_duration(plain) or types.is_time(plain))


def _spark_text(array: pa.Array, column: str) -> pa.StringArray:
    if not pa.types.is_binary(array.type):
        return plain_text(array, column)
    texts = [None if value is None else b64encode(value) for value in array.to_pylist()]
    return pa.array(texts, pa.binary()).cast(pa.string())


def _content(texts: pa.StringArray) -> memoryview:
    """The concatenated bytes of all texts: a slice of Arrow's buffer."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[
        texts.offset : texts.offset + len(texts) + 1
    ]
    return memoryview(texts.buffers()[2] or b"")[int(offsets[0]) : int(offsets[-1])]
