"""Dead letters as values: the row that a target refused as JSON, which reads back without loss.

Scalars are written as by ``jsontext``: numbers in full, dates and times as ISO text, bytes as
``\\x00ff``.
A value that has no such form (text with a NUL, or that is no UTF-8; a year before 1; an interval; a map
with one key twice) is written as ``{"abs:arrow": "<base64 of an Arrow stream>"}``. An object of the
input that has ``"abs:`` in its text is written as ``{"abs:plain": <the object>}``. The texts are ASCII,
so every database stores them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from abs_clients.arrow import cast_plain, decoded, is_list, plain_type, taken
from abs_core.errors import CorruptionError
from abs_sinks.jsontext import check_keys, json_text, require_json
from abs_sinks.refusals import BadRows, BadValuesError, MisfitError


class Field(NamedTuple):
    """A field of a dead letter as it is kept: Arrow types, tables, checks and JSON follow from it."""

    name: str
    type: pa.DataType = pa.string()
    needed: bool = True
    json: bool = False
    """Whether its text is JSON."""


OF_ROW = (
    Field("code"),
    Field("message"),
    Field("column", needed=False),
    Field("key", needed=False, json=True),
    Field("position", needed=False, json=True),
    Field("row", json=True),
)
"""What is said of a row, see ``DeadLetter``."""

SHAPE = (
    Field("job"),
    Field("sink"),
    Field("epoch", pa.int64()),
    Field("at", pa.timestamp("us", "UTC")),
    *OF_ROW,
    Field("schema"),
)
"""All that is kept of a dead letter. Places keep it for long: fields may only be added."""

LETTERS = pa.schema([pa.field(each.name, each.type, not each.needed) for each in SHAPE])
"""The columns of dead letters as rows."""

LISTED = tuple(each.name for each in SHAPE if each.name not in ("row", "schema"))
"""What a list shows of a letter: nothing that may be personal but the key."""

_ARROW = "abs:arrow"
OWN, PLAIN = '"abs:', "abs:plain"
"""What begins a key of ours in a text, and the key of an object of the input that has such a text."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One row that was refused.

    Args:
        code: SQLSTATE, or one of ``refusals.Code``.
        message: shows no value.
        column: of the input or of the target; None: the row as a whole, or unknown.
        key: the columns that identify the row, as a JSON object; None: not known.
        position: its place in the source, the same way.
        row: all columns but those left out.
    """

    code: str
    message: str
    column: str | None
    key: str | None
    position: str | None
    row: str


@dataclass(frozen=True, slots=True)
class Shown:
    """Which of a row's columns a dead letter has.

    Args:
        key: the columns that identify a row.
        left_out: columns that no dead letter shows (option ``deadlettercolumns``).
    """

    key: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def columns(self, schema: pa.Schema) -> list[str]:
        """The columns of the field ``row``."""
        hidden = {name.lower() for name in self.left_out}
        return [name for name in schema.names if name.lower() not in hidden]

    def position(self, schema: pa.Schema) -> list[str]:
        """The columns of the field ``position``: a Kafka source's, if the input has them."""
        names = self.columns(schema)
        return (
            [n for n in ("topic", "partition", "offset") if n in names] if "offset" in names else []
        )

    def keys(self, schema: pa.Schema) -> list[str]:
        """The columns of the field ``key``."""
        names = self.columns(schema)
        return [name for name in self.key if name in names]


Why = tuple[int, str, str, str | None]
"""A bad row's number in its batch, and code, message and column."""


def why_bad(bad: BadRows) -> list[Why]:
    """Of each bad row, in order."""
    rows = np.flatnonzero(bad.which >= 0).tolist()
    reasons = [bad.reasons[bad.which[row]] for row in rows]
    return [
        (row, str(reason.code), reason.message, reason.column or None)
        for row, reason in zip(rows, reasons, strict=True)
    ]


def dead_letters(batch: pa.RecordBatch, bad: Sequence[Why], shown: Shown) -> list[DeadLetter]:
    """A dead letter for each bad row, in order."""
    rows = [row for row, *_ in bad]
    refused = taken(batch, pa.array(rows, pa.int64()))
    schema = batch.schema
    texts = {name: _json_values(refused.column(name)) for name in shown.columns(schema)}

    def objects(names: Sequence[str]) -> Iterator[str | None]:
        for n in range(len(rows)):
            yield _object({name: texts[name][n] for name in names}) if names else None

    made = zip(
        bad,
        objects(shown.keys(schema)),
        objects(shown.position(schema)),
        objects(shown.columns(schema)),
        strict=True,
    )
    return [
        DeadLetter(code, message, column, key, position, row or "{}")
        for (_, code, message, column), key, position, row in made
    ]


_UNREADABLE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    pa.ArrowException,
)
"""What reading a row raises that is not one of the schema's."""


def rows_of(texts: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    """The rows of dead letters, from their field ``row``; columns that were left out are missing.

    Raises:
        CorruptionError: a text is no such row.
    """
    try:
        rows = [dict(json.loads(text, parse_float=Decimal, parse_int=_number)) for text in texts]
        fields = [field for field in schema if not rows or field.name in rows[0]]
        columns = [_column([row[f.name] for row in rows], f.type) for f in fields]
        read = [f.with_type(column.type) for f, column in zip(fields, columns, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(read))
    except _UNREADABLE as error:
        raise CorruptionError(
            f"A dead letter's row cannot be read as {schema.names}: {type(error).__name__}.",
            remedy="it was changed by hand, or belongs to another schema: see its field schema.",
        ) from error


def _number(text: str) -> int | float:
    """The server writes a double without a fraction so; no int has a sign at zero."""
    return -0.0 if text == "-0" else int(text)


_WRITTEN = b"abs:written"


def schema_text(schema: pa.Schema, written: Mapping[str, str] | None = None) -> str:
    """The schema of the rows, for the field ``schema``.

    Args:
        written: options that say how the rows are written, where they are no plain ones: changes,
            records with a schema, files of some format.
    """
    schema = schema.remove_metadata()
    if written:
        schema = schema.with_metadata({_WRITTEN: json.dumps(written)})
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def written_as(text: str) -> dict[str, str]:
    """The options that ``schema_text`` was given; empty: none, or a release before 0.2 wrote it."""
    options = (schema_of(text).metadata or {}).get(_WRITTEN)
    return {} if options is None else dict(json.loads(options))


def changes_of(text: str) -> dict[str, str]:
    """As ``written_as``, of rows that are changes; empty: they are none."""
    options = written_as(text)
    return options if options.get("write") == "changes" else {}


def schema_of(text: str) -> pa.Schema:
    """Inverse of ``schema_text``."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _json_values(array: pa.Array) -> list[str]:
    """JSON text of each value."""
    plain = plain_type(array.type)
    try:
        if not _has_text_form(plain):
            return [_fallback(array, row) for row in range(len(array))]
        require_json(plain)
        values = cast_plain(array, plain)
        check_keys(values, "")
        texts = json_text(pa.StructArray.from_arrays([values], ["v"]), "")
        return [_apart(_ascii(text[len('{"v":') : -1])) for text in texts.to_pylist()]
    except (BadValuesError, MisfitError, pa.ArrowException, UnicodeDecodeError):
        if len(array) == 1:
            return [_fallback(array, 0)]
        return [text for n in range(len(array)) for text in _json_values(array.slice(n, 1))]


def _fallback(array: pa.Array, row: int) -> str:
    if not array[row].is_valid:
        return "null"
    out = pa.BufferOutputStream()
    one = pa.RecordBatch.from_arrays([_alone(array, row)], ["v"])
    with pa.ipc.new_stream(out, one.schema) as stream:
        stream.write_batch(one)
    made = {_ARROW: base64.b64encode(out.getvalue().to_pybytes()).decode()}
    if pa.types.is_string(plain_type(array.type)):
        # For people. PostgreSQL could not take a field out of JSON with an escaped NUL.
        text = cast_plain(array.slice(row, 1), plain_type(array.type)).view(pa.binary())[0].as_py()
        made["text"] = text.decode(errors="replace").replace("\0", "\u2400")
    return json.dumps(made)


def _alone(array: pa.Array, row: int) -> pa.Array:
    """One value, without the others' memory where Arrow can."""
    try:
        return pa.concat_arrays([array.slice(row, 1)])
    except pa.ArrowNotImplementedError:
        return array.slice(row, 1)


def _object(values: dict[str, str]) -> str:
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in values.items()) + "}"


def _apart(text: str) -> str:
    """An object of the input, so that none of its keys is taken for ours."""
    return f'{{"{PLAIN}":{text}}}' if text.startswith("{") and OWN in text else text


def _ascii(text: str) -> str:
    return (
        text if text.isascii() else re.sub(r"[^\x00-\x7f]", lambda c: json.dumps(c[0])[1:-1], text)
    )


def _has_text_form(arrow: pa.DataType) -> bool:
    """Whether ``_value`` reads the text of ``jsontext``: not of durations and intervals."""
    if pa.types.is_nested(arrow):
        return all(_has_text_form(arrow.field(n).type) for n in range(arrow.num_fields))
    return not (pa.types.is_duration(arrow) or arrow.equals(pa.month_day_nano_interval()))


def _column(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    """The values, from their JSON, in the type if Arrow can make that of them, else in a plain one."""
    if not values:
        return pa.nulls(0, arrow)
    try:
        return pa.concat_arrays([_array(value, arrow) for value in values])
    except pa.ArrowException:
        encoded = pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow)
        other = arrow.value_type if encoded else plain_type(arrow)
        if other == arrow:
            raise
        return _column(values, other)


def _array(value: Any, arrow: pa.DataType) -> pa.Array:
    """An array of one value, from its JSON."""
    if value is None and pa.types.is_union(arrow):  # which nothing else makes
        return pa.nulls(1, arrow)
    if isinstance(value, dict) and value.keys() == {PLAIN} and isinstance(value[PLAIN], dict):
        value = value[PLAIN]
    elif isinstance(value, dict) and _ARROW in value:
        try:
            data = base64.b64decode(value[_ARROW])
            read: pa.Array = pa.ipc.open_stream(data).read_all().column(0).combine_chunks()
            if read.type == arrow:
                return read
            while isinstance(read, pa.DictionaryArray | pa.RunEndEncodedArray):
                read = decoded(read)
            return cast_plain(read, arrow) if arrow == plain_type(arrow) else read.cast(arrow)
        except (ValueError, TypeError, pa.ArrowException):
            # Releases before 0.2 wrote a map with this key as it was.
            if not pa.types.is_map(arrow):
                raise
    plain = plain_type(arrow)
    values = [_value(value, plain)]
    read = pa.array(values, plain)  # numbers of moments are in its unit
    try:
        return read.cast(arrow)
    except pa.ArrowNotImplementedError:
        made = pa.array(values, arrow)
        if not cast_plain(made, plain).equals(read):
            raise
        return made


def _value(value: Any, arrow: pa.DataType) -> Any:
    """What ``pa.array`` takes for a value of JSON."""
    if value is None:
        return None
    for is_kind, read in _READERS:
        if is_kind(arrow):
            return read(value)
    types = pa.types
    if types.is_date(arrow) or types.is_timestamp(arrow):
        return _moment(value, arrow)
    if types.is_map(arrow):
        items = value.items()
        return [(_value(k, arrow.key_type), _value(v, arrow.item_type)) for k, v in items]
    if is_list(arrow):
        return [_value(item, arrow.value_type) for item in value]
    if types.is_struct(arrow):
        return {field.name: _value(value.get(field.name), field.type) for field in arrow}
    months, days, micros = value
    return pa.MonthDayNano([months, days, micros * 1000])


_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
"""After so many years the calendar repeats."""


def _moment(text: str, arrow: pa.DataType) -> Any:
    """A date or timestamp: beyond the years that Python has, the number that Arrow has for it."""
    is_date = pa.types.is_date(arrow)
    parts = _YEAR.fullmatch(text)
    if parts is None or (1 <= int(parts["year"]) <= 9999 and not parts["before"]):
        return date.fromisoformat(text) if is_date else datetime.fromisoformat(text)
    year = 1 - int(parts["year"]) if parts["before"] else int(parts["year"])
    cycles, within = divmod(year - 1, _CYCLE_YEARS)
    moment = datetime.fromisoformat(f"{within + 1:04}{parts['rest']}")
    days = (moment.date() - date(1970, 1, 1)).days + cycles * _CYCLE_DAYS
    if is_date:
        return days if pa.types.is_date32(arrow) else days * 86_400_000
    of_day = timedelta(
        hours=moment.hour,
        minutes=moment.minute,
        seconds=moment.second,
        microseconds=moment.microsecond,
    )
    since = timedelta(0) if moment.tzinfo is None else moment.utcoffset() or timedelta(0)
    micros = days * 86_400_000_000 + (of_day - since) // timedelta(microseconds=1)
    return micros * 1000 if arrow.unit == "ns" else micros // _MICROS[arrow.unit]


_YEAR = re.compile(r"(?P<year>\d{4,7})(?P<rest>-\d\d-\d\d.*?)(?P<before> BC)?")
_DAY_US = 86_400_000_000
_MICROS = {"us": 1, "ms": 1000, "s": 1_000_000}

_READERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...] = (
    # The server writes what a column of type jsonb got as text as JSON.
    (pa.types.is_string, lambda v: v if isinstance(v, str) else json.dumps(v, default=str)),
    (pa.types.is_binary, lambda v: bytes.fromhex(v.removeprefix("\\x"))),
    (pa.types.is_boolean, lambda v: v if isinstance(v, bool) else v == "true"),
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_decimal, lambda v: Decimal(str(v))),
    (pa.types.is_time, lambda v: _DAY_US if v == "24:00:00" else time.fromisoformat(v)),
    # The server's [months, days, microseconds].
    (pa.types.is_duration, lambda v: v[1] * _DAY_US + v[2]),
)
