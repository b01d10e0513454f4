"""Files whose rows Spark's own reader has told, and the same files read by ours.

``python -m tests.sources.files.oracle csv json text parquet`` asks Spark anew. A case is a
file of a group (format, options, schema); Spark reads all files of a group at once.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from abs_clients.arrow import is_list
from abs_core.errors import RowError, SchemaError
from abs_sources.files import FileOptions
from abs_sources.files.formats import FileReader, stored_schema
from abs_sources.files.model import Piece, Pin

ANSWERS = Path(__file__).parent / "answers"
BYTES = pa.binary()
REFUSED = "refused"
BROKEN = "broken"
"""An error that is not one of ours, or a batch that is not valid: never right."""
ZONE = "America/New_York"
"""The session's: what is read by it, instead of by the file, is hours off."""

Answer = Any
"""``REFUSED``, or the rows; without a given schema, the types and the rows."""


@dataclass(frozen=True)
class Group:
    """Files that one read of Spark reads.

    Args:
        schema: None if the files' own is read.
        files: content by its label; the label of a text is the text.
        spark: options of Spark's reader that differ from ours.
    """

    form: str
    schema: pa.Schema | None
    files: Mapping[str, bytes]
    options: Mapping[str, str]
    spark: Mapping[str, str]

    @property
    def label(self) -> str:
        types = (
            "its own"
            if self.schema is None
            else ", ".join(f"{f.name} {f.type}" for f in self.schema)
        )
        return json.dumps([self.form, dict(self.options), types])


def group(
    form: str,
    schema: pa.Schema | None,
    files: Iterable[str] | Mapping[str, bytes],
    options: Mapping[str, str] | None = None,
    spark: Mapping[str, str] | None = None,
) -> Group:
    if not isinstance(files, Mapping):
        files = {text: text.encode("utf-8", "surrogateescape") for text in files}
    return Group(form, schema, files, options or {}, spark or {})


def parquet(table: pa.Table, **how: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **how)
    return out.getvalue()


# What ours reads.


def ours(
    one: Group, piece: int | None = None, chunk: int = 1 << 20
) -> Iterator[tuple[str, Answer, str]]:
    """Of each file: its label, the answer, and the error's text.

    Args:
        piece: bytes of the pieces that a text is cut into.
    """
    with tempfile.TemporaryDirectory() as folder:
        names = {f"f{number}": label for number, label in enumerate(one.files)}
        for name, label in names.items():
            (Path(folder) / name).write_bytes(one.files[label])
        given = {"path": folder, "fileformat": one.form, **one.options}
        options = replace(FileOptions.parse(given, streaming=False), chunk=chunk)
        store = options.store()
        for found in sorted(store.find(), key=lambda found: int(found.pin.path[1:])):
            label = names[found.pin.path]
            try:
                yield label, _read(options, store, found.pin, one.schema, piece), ""
            except (RowError, SchemaError) as error:
                yield label, REFUSED, str(error)
            except (pa.ArrowException, AssertionError) as error:
                yield label, BROKEN, repr(error)


def _read(options: Any, store: Any, pin: Pin, schema: pa.Schema | None, step: int | None) -> Answer:
    wanted = stored_schema(options, store, [pin]) if schema is None else schema
    rows: list[Any] = []
    step = step or max(1, pin.size)
    for start in range(0, max(1, pin.size), step):
        reader = FileReader(
            options, store, None, wanted, Piece(pin, start, min(start + step, pin.size)), None
        )
        try:
            while (batch := reader.read()) is not None:
                batch.validate(full=True)
                assert batch.schema.equals(wanted), batch.schema
                rows += _rows(batch)
        finally:
            reader.close()
    return rows if schema is not None else [_types(wanted), rows]


def _rows(batch: pa.RecordBatch) -> list[Any]:
    return [list(row) for row in zip(*map(_values, batch.columns), strict=True)]


def _values(array: pa.Array) -> list[Any]:
    """Values as JSON has them, exactly: times are microseconds, binary is hexadecimal."""
    kind, types = array.type, pa.types
    if types.is_struct(kind):
        columns = map(_values, array.flatten())
        rows = [list(row) for row in zip(*columns, strict=True)]
        return [row if valid else None for row, valid in zip(rows, _valid(array), strict=True)]
    if is_list(kind) or types.is_map(kind):
        return [_values(array[n].values) if ok else None for n, ok in enumerate(_valid(array))]
    if types.is_timestamp(kind):
        unit = pa.timestamp("us", kind.tz)
        return array.cast(unit).cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    if types.is_date(kind):
        return array.cast(pa.date32()).cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    if types.is_string(kind):
        return [
            v if v is None else v.decode(errors="backslashreplace")
            for v in array.cast(BYTES).to_pylist()
        ]
    found = array.to_pylist()
    if types.is_decimal(kind) or types.is_floating(kind) or types.is_time(kind):
        return [None if value is None else str(value) for value in found]
    return [value.hex() if isinstance(value, bytes) else value for value in found]


def _valid(array: pa.Array) -> list[bool]:
    return array.is_valid().to_pylist()  # type: ignore[no-any-return]


def _types(schema: pa.Schema) -> str:
    from pyspark.sql.pandas.types import from_arrow_schema

    return str(from_arrow_schema(schema, prefer_timestamp_ntz=True).simpleString())


# What Spark reads.


def ask(groups: Sequence[Group]) -> dict[str, dict[str, Answer]]:
    """Spark's answers: by group, then by file."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", ZONE)
        .config("spark.sql.files.openCostInBytes", "100")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    try:
        with ThreadPoolExecutor(4) as pool:
            answers = pool.map(lambda one: _asked(spark, one, list(one.files)), groups)
            return dict(zip([one.label for one in groups], answers, strict=True))
    finally:
        spark.stop()


def _asked(spark: Any, one: Group, labels: Sequence[str]) -> dict[str, Answer]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    alone = one.schema is None and len(labels) > 1  # the types are of one file
    try:
        if not alone:
            return _told(spark, one, labels)
    except (Py4JError, PySparkException):
        if len(labels) == 1:
            return {labels[0]: REFUSED}
    half = (len(labels) + 1) // 2
    return _asked(spark, one, labels[:half]) | _asked(spark, one, labels[half:])


def _told(spark: Any, one: Group, labels: Sequence[str]) -> dict[str, Answer]:
    from pyspark.sql.functions import col, lit, struct
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StringType, StructType

    with tempfile.TemporaryDirectory() as folder:
        for number, label in enumerate(labels):
            (Path(folder) / f"f{number}").write_bytes(one.files[label])
        reader = spark.read.options(**{**one.options, **one.spark})
        if len(labels) > 1 and one.form == "parquet":  # a refused file gives no rows
            reader = reader.option("ignoreCorruptFiles", "true")
        bad = lit(None)
        if one.schema is not None:
            schema = StructType(list(from_arrow_schema(one.schema, prefer_timestamp_ntz=True)))
            if one.form in ("csv", "json"):
                schema.add("_bad", StringType())
                reader, bad = reader.option("columnNameOfCorruptRecord", "_bad"), col("_bad")
            reader = reader.schema(schema)
        frame = reader.format(one.form).load(folder)
        kind = frame.schema.simpleString()
        row = struct(*[col(f"`{f.name}`") for f in frame.schema if f.name != "_bad"])
        table = frame.select(
            col("_metadata.file_name").alias("file"), bad.isNotNull().alias("bad"), row.alias("row"),
        ).toArrow()  # fmt: skip
    rows = _values(table["row"].combine_chunks())
    found: dict[str, Answer] = {label: [] for label in labels}
    for file, is_bad, values in zip(
        table["file"].to_pylist(), table["bad"].to_pylist(), rows, strict=True
    ):
        label = labels[int(file[1:])]
        if is_bad or found[label] == REFUSED:
            found[label] = REFUSED
        else:
            found[label].append(values)
    if one.schema is None:
        return {label: [kind, rows] for label, rows in found.items()}
    if one.form == "parquet":
        return {label: rows or REFUSED for label, rows in found.items()}
    return found


def frozen() -> dict[str, dict[str, Answer]]:
    """What Spark answered, by group and file; the answers stand in the order of the group's files."""
    from tests.sources.files.oracle_cases import every

    kept: dict[str, Any] = {}
    for path in sorted(ANSWERS.glob("*.json")):
        kept |= json.loads(path.read_text())
    found = {}
    for one in every(0):
        digest, told = kept.pop(one.label)
        assert digest == _digest(one), f"other files than Spark was asked about: {one.label}"
        found[one.label] = dict(zip(one.files, told, strict=True))
    assert not kept
    return found


def _digest(one: Group) -> str:
    return hashlib.sha256("\0".join(one.files).encode(errors="replace")).hexdigest()[:12]


def freeze(
    groups: Sequence[Group], answers: Mapping[str, Mapping[str, Answer]], path: Path
) -> None:
    """Write a line for each group."""
    each = {g.label: [_digest(g), [answers[g.label][label] for label in g.files]] for g in groups}
    lines = (f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in each.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> None:
    """Ask Spark about the files of these formats."""
    from tests.sources.files.oracle_cases import every

    for form in sys.argv[1:]:
        groups = [one for one in every(0) if one.form == form]
        freeze(groups, ask(groups), ANSWERS / f"{form}.json")


if __name__ == "__main__":
    main()
