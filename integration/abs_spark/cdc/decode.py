"""What a value means, from how it is sent.

A value of JSON's converter has bytes as base64; one of Avro has bytes. Each function checks the form
of what it gets: another one was sent in another way than its type says.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from enum import Enum
from typing import Any

from abs_spark.cdc import clock, wire
from abs_spark.cdc.misread import MisreadError
from abs_spark.cdc.wire import Wire

Make = Callable[[Any], Any]


class Kind(Enum):
    """What a value is; in brackets its Python type here."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    REAL = "real"  # float, with the digits of 32 bits
    DOUBLE = "double precision"
    NUMERIC = "numeric"  # Decimal
    TEXT = "text"
    BYTES = "bytes"
    DATE = "date"  # days since 1970, or infinity as text
    TIME = "time"  # microseconds
    TIMETZ = "time with a zone"  # text
    TIMESTAMP = "timestamp"  # microseconds since 1970, or infinity as text
    TIMESTAMPTZ = "timestamp with a zone"  # the same
    DURATION = "interval as a number"  # microseconds
    INTERVAL = "interval"  # text
    BITS = "bits"  # text of 0 and 1
    POINT = "point"  # (x, y)
    GEOMETRY = "geometry"  # (bytes, srid)
    JSON = "json"  # text
    PAIRS = "map"  # dict of text to text or None


@dataclass(frozen=True, slots=True)
class Reading:
    """How a value is read.

    Args:
        make: gets what was sent, never None; raises MisreadError.
        coarse: Debezium may have cut digits below a millisecond.
    """

    kind: Kind
    make: Make
    coarse: bool = False


def reading(sent: Wire) -> Reading:
    """How values of a type are read; arrays are read by their items.

    Raises:
        MisreadError: it is not known what they mean.
    """
    if sent.name:
        by_name = _NAMED.get(sent.name)
        if by_name is not None:
            return by_name(sent)
    elif sent.type in _PLAIN:
        return _PLAIN[sent.type]
    raise MisreadError(
        f"is sent as {sent.shown}, which is not read here",
        "leave the column out: ignore=('...',)",
    )


def of_type(*types: type) -> Make:
    """The value itself, if it is of such a type."""

    def check(value: Any) -> Any:
        if type(value) not in types:
            raise MisreadError("is not sent as its type says")
        return value

    return check


_number, _text = of_type(int), of_type(str)


def _float(value: Any) -> float:
    if type(value) in (int, float):
        return float(value)
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    raise MisreadError("is not sent as a number")


def raw(value: Any) -> bytes:
    """Bytes, of Avro or as JSON's converter sends them."""
    return value if isinstance(value, bytes) else from_base64(value)


def from_base64(value: Any, *, url_safe: bool = False) -> bytes:
    """The bytes of a text in base64; only of that one text that base64 has for them."""
    altchars = b"-_" if url_safe else None
    try:
        data = base64.b64decode(_text(value), altchars, validate=True)
    except ValueError:
        raise MisreadError("is not in base64") from None
    if base64.b64encode(data, altchars).decode() != value:
        raise MisreadError("is not in base64")
    return data


def from_hex(value: Any) -> bytes:
    """The bytes of a text in base16."""
    if re.fullmatch(r"([0-9a-f]{2})*", _text(value)) is None:
        raise MisreadError("is not in hex")
    return bytes.fromhex(value)


_UNSCALED = Context(prec=200_000, Emax=900_000, Emin=-900_000)
"""Wide enough for every numeric of PostgreSQL: 131072 digits before the point, 16383 behind."""
_MAX_SCALE = 1000
"""Of a numeric(p, s)."""


def decimal(value: Any, scale: int) -> Decimal:
    """A number from its bytes in two's complement, and the digits behind its point."""
    if isinstance(value, Decimal):
        return value  # of Avro, decoded
    data = raw(value)
    number = int.from_bytes(data, "big", signed=True)
    if len(data) != (number if number >= 0 else ~number).bit_length() // 8 + 1:
        raise MisreadError("is not the bytes of a number")
    if scale > _MAX_SCALE:
        # Debezium takes a negative scale, which is stored in 11 bits, for a positive one.
        number, rest = divmod(number, 10**scale)
        if rest:
            raise MisreadError(f"has the scale {scale}, which PostgreSQL does not have")
        scale = 0
    return Decimal(number).scaleb(-scale, _UNSCALED)


def _variable(value: Any) -> Decimal:
    if not isinstance(value, Mapping) or value.keys() != {"scale", "value"}:
        raise MisreadError("is not sent as a number with its scale")
    return decimal(value["value"], _number(value["scale"]))


_NUMERAL = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d{1,6})?")
_SPECIAL = {
    "NAN": "NaN",
    "NaN": "NaN",
    "POSITIVE_INFINITY": "Infinity",
    "Infinity": "Infinity",
    "NEGATIVE_INFINITY": "-Infinity",
    "-Infinity": "-Infinity",
}


def numeral(value: str) -> Decimal:
    """The number of a text, as ``decimal.handling.mode=string`` sends it."""
    if value in _SPECIAL:
        return Decimal(_SPECIAL[value])
    if _NUMERAL.fullmatch(value) is None:
        raise MisreadError("is no number")
    return Decimal(value)


def _bits(sent: Wire) -> Reading:
    length = sent.number("length")
    if length is None:
        raise MisreadError("is sent as bits without their number")

    def make(value: Any) -> str:
        number = int.from_bytes(raw(value), "little")
        if number.bit_length() > length:
            raise MisreadError(f"has more than {length} bits")
        return f"{number:0{length}b}"

    return Reading(Kind.BITS, make)


def _point(value: Any) -> tuple[float, float]:
    if not isinstance(value, Mapping) or not {"x", "y"} <= value.keys():
        raise MisreadError("is not sent as a point")
    return _float(value["x"]), _float(value["y"])


def _geometry(value: Any) -> tuple[bytes, int | None]:
    if not isinstance(value, Mapping) or "wkb" not in value:
        raise MisreadError("is not sent as a geometry")
    return raw(value["wkb"]), value.get("srid")


def _pairs(value: Any) -> dict[str, str | None]:
    pairs = dict(value) if isinstance(value, (list, Mapping)) else None
    if pairs is None or not all(type(v) in (str, type(None)) for v in pairs.values()):
        raise MisreadError("is not sent as a map of texts")
    return pairs


def _numbers(kind: Kind, make: Make, *, coarse: bool = False) -> Callable[[Wire], Reading]:
    return lambda _: Reading(kind, lambda value: make(_number(value)), coarse)


def _texts(kind: Kind, make: Make | None = None) -> Callable[[Wire], Reading]:
    if make is None:
        return lambda _: Reading(kind, _text)
    return lambda _: Reading(kind, lambda value: make(_text(value)))


def _decimal(sent: Wire) -> Reading:
    scale = sent.number("scale")
    if scale is None:
        raise MisreadError("is a number whose schema has no scale")
    return Reading(Kind.NUMERIC, lambda value: decimal(value, scale))


def _connect(kind: Kind, make: Make) -> Callable[[Wire], Reading]:
    """Kafka Connect's own types, in milliseconds; Avro's decoder made microseconds of them."""

    def read(sent: Wire) -> Reading:
        factor = 1 if wire.MICROS in sent.parameters else 1000
        return Reading(kind, lambda value: make(_number(value) * factor), coarse=True)

    return read


def _zoned_clock(value: str) -> str:
    clock.clock_of(value)
    return clock.clock_text(clock.clock_of(value)) + "+00"


def json_pairs(value: str) -> dict[str, str | None]:
    """The pairs of an hstore that is sent as JSON."""
    try:
        return _pairs(json.loads(value))
    except ValueError:
        raise MisreadError("is not JSON") from None


_ms = 1000
_PLAIN: Mapping[str, Reading] = {
    "boolean": Reading(Kind.BOOLEAN, of_type(bool)),
    **{f"int{n}": Reading(Kind.INTEGER, _number) for n in (8, 16, 32, 64)},
    "float": Reading(Kind.REAL, _float),
    "double": Reading(Kind.DOUBLE, _float),
    "string": Reading(Kind.TEXT, _text),
    "bytes": Reading(Kind.BYTES, raw),
    "map": Reading(Kind.PAIRS, _pairs),
}
_NAMED: Mapping[str, Callable[[Wire], Reading]] = {
    wire.DECIMAL: _decimal,
    wire.VARIABLE_DECIMAL: lambda _: Reading(Kind.NUMERIC, _variable),
    wire.DATE: _numbers(Kind.DATE, clock.days_of),
    wire.CONNECT_DATE: _numbers(Kind.DATE, clock.days_of),
    wire.ISO_DATE: _texts(Kind.DATE, clock.days_of_iso),
    "io.debezium.time.Time": _numbers(Kind.TIME, lambda n: clock.checked_clock(n * _ms)),
    "io.debezium.time.MicroTime": _numbers(Kind.TIME, clock.checked_clock),
    "io.debezium.time.NanoTime": _numbers(
        Kind.TIME, lambda n: clock.checked_clock(clock.whole_micros(n))
    ),
    wire.CONNECT_TIME: _connect(Kind.TIME, clock.checked_clock),
    wire.ISO_TIME: _texts(Kind.TIME, clock.clock_of),
    wire.ZONED_TIME: _texts(Kind.TIMETZ, _zoned_clock),
    "io.debezium.time.Timestamp": _numbers(Kind.TIMESTAMP, lambda n: clock.micros_of(n * _ms)),
    "io.debezium.time.MicroTimestamp": _numbers(Kind.TIMESTAMP, clock.micros_of),
    "io.debezium.time.NanoTimestamp": _numbers(Kind.TIMESTAMP, clock.micros_of_nanos),
    wire.CONNECT_TIMESTAMP: _connect(Kind.TIMESTAMP, clock.micros_of),
    wire.ISO_TIMESTAMP: _texts(Kind.TIMESTAMP, clock.micros_of_iso),
    wire.ZONED_TIMESTAMP: _texts(Kind.TIMESTAMPTZ, clock.micros_of_iso),
    wire.DURATION: _numbers(Kind.DURATION, int),
    wire.INTERVAL: _texts(Kind.INTERVAL),
    wire.BITS: _bits,
    wire.POINT: lambda _: Reading(Kind.POINT, _point),
    wire.GEOMETRY: lambda _: Reading(Kind.GEOMETRY, _geometry),
    wire.GEOGRAPHY: lambda _: Reading(Kind.GEOMETRY, _geometry),
    wire.JSON: _texts(Kind.JSON),
    **{
        f"io.debezium.data.{name}": _texts(Kind.TEXT)
        for name in ("Uuid", "Xml", "Enum", "Ltree", "Tsvector")
    },
}
