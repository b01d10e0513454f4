"""The row of a dead letter as JSON, which reads back without loss.

Scalars are written as by ``jsontext``: numbers in full, dates and times as ISO text, bytes as
``\\x00ff``.
A value that has no such form (text with a NUL, or that is no UTF-8; a year before 1; an interval; a map
with one key twice) is written as ``{"abs:arrow": "<base64 of an Arrow stream>"}``. An object of the
input that has ``"abs:`` in its text is written as ``{"abs:plain": <the object>}``. The texts are ASCII,
so every database stores them. What PostgreSQL makes of a row is read, too: see ``server_row`` there.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from abs_clients.arrow import cast_plain, decoded, is_list, plain_type, type_name, with_inner
from abs_core.errors import CorruptionError
from abs_sinks.jsontext import check_keys, json_text, require_json
from abs_sinks.refusals import BadValuesError, MisfitError

_ARROW = "abs:arrow"
OWN, PLAIN = '"abs:', "abs:plain"
"""What begins a key of ours in a text, and the key of an object of the input that has such a text."""


def json_values(array: pa.Array) -> list[str]:
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
        return [text for n in range(len(array)) for text in json_values(array.slice(n, 1))]


def _fallback(array: pa.Array, row: int) -> str:
    # Of a union, null is a value of one of its types.
    if not array[row].is_valid and not pa.types.is_union(array.type):
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


def object_text(values: Mapping[str, str]) -> str:
    """The JSON object of these JSON texts."""
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in values.items()) + "}"


def _apart(text: str) -> str:
    """An object of the input, so that none of its keys is taken for ours."""
    return f'{{"{PLAIN}":{text}}}' if text.startswith("{") and OWN in text else text


def _ascii(text: str) -> str:
    return (
        text if text.isascii() else re.sub(r"[^\x00-\x7f]", lambda c: json.dumps(c[0])[1:-1], text)
    )


def _has_text_form(arrow: pa.DataType) -> bool:
    """Whether the text of ``jsontext`` is written: older releases do not read that of intervals."""
    if pa.types.is_nested(arrow):
        return all(_has_text_form(arrow.field(n).type) for n in range(arrow.num_fields))
    if pa.types.is_decimal(arrow) and arrow.precision - arrow.scale > _MAX_DIGITS:
        return False
    return not (pa.types.is_duration(arrow) or arrow.equals(pa.month_day_nano_interval()))


def _column(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    """The values, from their JSON, in the type if Arrow can make that of them, else in a plain one."""
    if not values:
        return pa.nulls(0, arrow)
    try:
        arrays = [_array(value, arrow) for value in values]
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
    except pa.ArrowException:
        encoded = pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow)
        other = arrow.value_type if encoded else plain_type(arrow)
        if other == arrow:
            raise
        return _column(values, other)


def _array(value: Any, arrow: pa.DataType) -> pa.Array:
    """An array of one value, from its JSON."""
    if value is None and pa.types.is_nested(arrow):
        null = pa.nulls(1, arrow)  # Arrow makes some types of nothing else
        if _is_whole(null):
            return null
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
    plain = _wide(plain_type(arrow))
    values = [_value(value, plain)]
    read = pa.array(values, plain)  # numbers of moments are in its unit
    if plain == arrow:
        return read
    with suppress(pa.ArrowNotImplementedError):
        made = read.cast(arrow)
        if _is_whole(made):
            return made
    made = pa.array(values, arrow)
    if not cast_plain(made, plain).equals(read):
        made_of = f"{type_name(arrow)} of {type_name(plain)}"
        raise pa.ArrowNotImplementedError(f"Arrow makes no {made_of}")
    return made


_MAX_DIGITS = 76


def _wide(plain: pa.DataType) -> pa.DataType:
    """The type in which Arrow makes decimals with a negative scale of numbers with all their digits."""
    if pa.types.is_decimal(plain) and plain.scale < 0:
        return pa.decimal256(min(plain.precision - plain.scale, _MAX_DIGITS), 0)
    return with_inner(plain, _wide)


def _is_whole(made: pa.Array) -> bool:
    """Whether Arrow made it well: Arrow 26 cuts lists of nulls in casts, and gives runs a bitmap."""
    try:
        made.validate()
    except pa.ArrowInvalid:
        return False
    return True


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
    months, days, micros = _interval(value)
    return pa.MonthDayNano([months, days, micros * 1000])


_INTERVAL = re.compile(
    r"(?:([+-]?\d+) years? ?)?(?:([+-]?\d+) mons? ?)?(?:([+-]?\d+) days? ?)?"
    r"(?:([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?"
)


def _interval(value: str | Sequence[int]) -> tuple[int, int, int]:
    """Months, days and microseconds: from the server's list of them, or from a text."""
    if not isinstance(value, str):
        months, days, micros = map(int, value)
        return months, days, micros
    parts = _INTERVAL.fullmatch(value)
    if parts is None:
        raise ValueError("no interval")
    years, months, days = (int(part or 0) for part in parts.groups()[:3])
    sign, *clock, fraction = parts.groups()[3:]
    hours, minutes, seconds = (int(part or 0) for part in clock)
    micros = (hours * 3600 + minutes * 60 + seconds) * 1_000_000 + int(
        (fraction or "").ljust(6, "0")
    )
    return years * 12 + months, days, -micros if sign == "-" else micros


_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
"""After so many years the calendar repeats."""


def _moment(text: str, arrow: pa.DataType) -> Any:
    """A date or timestamp: beyond the years that Python has, the number that Arrow has for it."""
    is_date = pa.types.is_date(arrow)
    if is_date:  # of a column of moments
        text = text.replace("T00:00:00", "")
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
    # Of lists of texts in a column of type jsonb[] and the like, releases before 0.2 wrote JSON.
    (pa.types.is_string, lambda v: v if isinstance(v, str) else _json(v)),
    # The server writes a list of uuid with hyphens.
    (pa.types.is_binary, lambda v: bytes.fromhex(v.removeprefix("\\x").replace("-", ""))),
    (pa.types.is_boolean, lambda v: v if isinstance(v, bool) else v == "true"),
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_decimal, lambda v: _decimal(str(v))),
    (pa.types.is_time, lambda v: _DAY_US if v == "24:00:00" else time.fromisoformat(v)),
    (pa.types.is_duration, lambda v: _interval(v)[1] * _DAY_US + _interval(v)[2]),
)


def _decimal(text: str) -> Decimal:
    """The number without zeros at its end: the server writes as many as the column's scale."""
    whole, point, fraction = text.partition(".")
    return Decimal(text if "E" in fraction else f"{whole}{point}{fraction.rstrip('0')}")


def _json(value: Any) -> str:
    """The JSON text of what ``json.loads`` made of one, with the digits of its numbers."""
    if isinstance(value, dict):
        return object_text({name: _json(inner) for name, inner in value.items()})
    if isinstance(value, list):
        return f"[{','.join(map(_json, value))}]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value)


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
        rows = [dict(_loads(text)) for text in texts]
        fields = [field for field in schema if not rows or field.name in rows[0]]
        columns = [_column([row[f.name] for row in rows], f.type) for f in fields]
        read = [f.with_type(column.type) for f, column in zip(fields, columns, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(read))
    except _UNREADABLE as error:
        raise CorruptionError(
            f"A dead letter's row cannot be read as {schema.names}: {type(error).__name__}.",
            remedy="it was changed by hand, or belongs to another schema: see its field schema.",
        ) from error


class _Object(dict[str, Any]):
    """An object of JSON that may have a key twice, as a column of type json keeps it.

    As a mapping it has the last one of each key; ``items`` has all.
    """

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def items(self) -> Any:
        return self._pairs


def _loads(text: str) -> Any:
    return json.loads(text, parse_float=Decimal, parse_int=_number, object_pairs_hook=_Object)


def _number(text: str) -> int | float:
    """The server writes a double without a fraction so; no int has a sign at zero."""
    return -0.0 if text == "-0" else int(text)
