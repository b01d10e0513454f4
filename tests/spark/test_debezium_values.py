"""What a value means, by the event's schema or by what is said; no Spark and no server.

``SENT`` is what Debezium 3.6 was seen to send, and PostgreSQL's text of the value in the source.
``differences`` reads each in its three forms, and is proved by planted bugs.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T  # noqa: N812 - as Spark users call it

from abs_clients.avro.connect import connect_schema, dropped, means_another
from abs_clients.avro.schema import parsed
from abs_core.errors import DataError
from abs_spark.cdc import assumed, clock, decode, placeholders, wire
from abs_spark.cdc.convert import converter
from abs_spark.cdc.misread import MisreadError
from abs_spark.cdc.reader import EventReader, Rules
from abs_spark.cdc.settings import Settings
from abs_spark.cdc.target import TargetColumn
from abs_spark.cdc.wire import Wire
from abs_spark.change_events import UNAVAILABLE, _added_type

STRING = T.StringType()


def column(
    pg: str, spark: T.DataType = STRING, digits: int = 6, *, array: bool = False
) -> TargetColumn:
    one = TargetColumn("v", spark, pg, digits)
    return TargetColumn("v", T.ArrayType(spark), f"_{pg}", digits, one) if array else one


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def unscaled(number: int) -> bytes:
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(size, "big", signed=True)


@dataclass(frozen=True)
class Sent:
    """A value as it is sent, and as the source has it.

    Args:
        said: what must be said of it without a schema; None: it cannot be read then.
    """

    schema: dict[str, Any]
    value: Any
    target: TargetColumn
    text: Any
    said: dict[str, Any] | None = field(default_factory=dict)


def named(type: str, name: str, **parameters: str) -> dict[str, Any]:  # noqa: A002
    return {"type": type, "name": name, "parameters": parameters}


def numeric(scale: int, value: int, target: str, text: str) -> Sent:
    schema = named("bytes", wire.DECIMAL, scale=str(scale))
    said = {"decimals": "precise", "scales": {"v": scale}}
    return Sent(schema, b64(unscaled(value)), column(target), text, said)


TIME = "io.debezium.time."
SENT = [
    numeric(2, 12345, "numeric", "123.45"),
    numeric(4, 75000, "numeric", "7.5000"),
    numeric(0, 10**40 + 7, "numeric", str(10**40 + 7)),
    numeric(5, -(10**39), "numeric", "-1" + "0" * 34 + ".00000"),
    numeric(2046, 123 * 10**2048, "numeric", "12300"),
    Sent({"type": "string"}, "99.99", column("numeric"), "99.99", {"decimals": "string"}),
    Sent({"type": "string"}, "NAN", column("numeric"), "NaN", {"decimals": "string"}),
    Sent({"type": "int64"}, 1234, column("numeric"), "1234"),
    Sent(
        {"type": "struct", "name": wire.VARIABLE_DECIMAL},
        {"scale": 30, "value": b64(b"\x01")},
        column("numeric"),
        "0.000000000000000000000000000001",
    ),
    Sent(named("int64", TIME + "Timestamp"), 1_767_323_045_678, column("timestamp"),
         "2026-01-02 03:04:05.678", {"times": "adaptive", "milliseconds": frozenset({"v"})}),
    Sent(named("int64", TIME + "MicroTimestamp"), 86_400_000_000, column("timestamp", digits=3),
         "1970-01-02 00:00:00", {"times": "microseconds"}),
    Sent(named("int64", TIME + "NanoTimestamp"), -1000, column("timestamp"),
         "1969-12-31 23:59:59.999999", {"times": "nanoseconds"}),
    Sent(named("int64", wire.CONNECT_TIMESTAMP), 1_790_000_000_000, column("timestamp", digits=3),
         "2026-09-21 14:13:20", {"times": "connect"}),
    Sent(named("string", wire.ISO_TIMESTAMP), "+12024-02-29T01:02:03.456789Z", column("timestamp"),
         "12024-02-29 01:02:03.456789", {"times": "isostring"}),
    Sent(named("int64", TIME + "MicroTimestamp"), 9_223_372_036_825_200_000, column("timestamp"),
         "infinity", {"times": "microseconds"}),
    Sent(named("string", wire.ZONED_TIMESTAMP), "-infinity", column("timestamptz"), "-infinity"),
    Sent(named("string", wire.ZONED_TIMESTAMP), "-0043-03-15T12:00:00.500000Z", column("timestamptz"),
         "0044-03-15 12:00:00.5+00 BC"),
    Sent(named("int32", wire.DATE), -735_160, column("date"), "0044-03-15 BC"),
    Sent(named("int32", wire.DATE), -2_147_472_692, column("date"), "infinity"),
    Sent(named("string", wire.ISO_DATE), "2024-02-29Z", column("date"), "2024-02-29"),
    Sent(named("int32", TIME + "Time"), 86_400_000, column("time"), "24:00:00",
         {"times": "adaptive", "milliseconds": frozenset({"v"})}),
    Sent(named("int64", TIME + "MicroTime"), 45_296_789_012, column("time"), "12:34:56.789012",
         {"times": "adaptive_time_microseconds", "milliseconds": frozenset({"v"})}),
    Sent(named("string", wire.INTERVAL), "P0Y-1M0DT0H0M0S", column("interval"), "P0Y-1M0DT0H0M0S"),
    Sent(named("bytes", wire.BITS, length="9"), "AQE=", column("bit"), "100000001", None),
    Sent({"type": "struct", "name": wire.POINT}, {"x": 1.5, "y": "NaN", "wkb": None, "srid": None},
         column("point"), "(1.5,NaN)"),
    Sent({"type": "map"}, {'q"': "x", "b": None}, column("public.hstore"), r'"q\""=>"x", "b"=>NULL'),
    Sent(named("string", wire.JSON), '{"a":"1"}', column("public.hstore"), '"a"=>"1"'),
    Sent({"type": "bytes"}, "AP8Q", column("bytea", T.BinaryType()), b"\x00\xff\x10",
         {"binary": "bytes"}),
    Sent({"type": "string"}, "deadbeef", column("bytea", T.BinaryType()), b"\xde\xad\xbe\xef",
         {"binary": "hex"}),
    Sent({"type": "float"}, 0.1, column("float4", T.FloatType()), 0.1),
    Sent({"type": "double"}, "-Infinity", column("float8", T.DoubleType()), float("-inf")),
    Sent({"type": "array", "items": {"type": "int32"}}, [1, None],
         column("int4", T.IntegerType(), array=True), [1, None]),
    Sent({"type": "array", "items": named("bytes", wire.DECIMAL, scale="2")}, ["MDk="],
         column("numeric", array=True), ["123.45"],
         {"decimals": "precise", "scales": {"v": 2}}),
]  # fmt: skip


def image(target: TargetColumn, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an event of a row with this column."""
    row = [{"field": "id", "type": "int32"}, {"field": target.name, **schema}]
    return {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": row}]}


def event(value: Any, op: str = "u", key: int = 1) -> dict[str, Any]:
    row = {"id": key, "v": value}
    return {"op": op, "before": None, "after": row, "source": {"lsn": 7, "sequence": '["5","7"]'}}


def rules(target: TargetColumn, **more: Any) -> Rules:
    kinds: dict[type[T.DataType], pa.DataType] = {
        T.IntegerType: pa.int32(),
        T.BinaryType: pa.binary(),
        T.FloatType: pa.float32(),
    }
    arrow = kinds.get(type(target.items.spark if target.items else target.spark), pa.string())
    if isinstance(target.spark, T.DoubleType):
        arrow = pa.float64()
    names = ("op", "lsn", "unchanged")
    schema = pa.schema([
        ("id", pa.int32()),
        ("v", pa.list_(arrow) if target.items else arrow),
        ("op", pa.string()),
        ("lsn", pa.int64()),
        ("unchanged", pa.list_(pa.string())),
    ])  # fmt: skip
    key = TargetColumn("id", T.IntegerType(), "int4")
    given = {"settings": Settings(unavailable=UNAVAILABLE)} | more
    return Rules(targets=(key, target), key=("id",), names=names, schema=schema, **given)


def read(rules: Rules, *events: Any) -> list[dict[str, Any]]:
    texts = [each if isinstance(each, str) else json.dumps(each) for each in events]
    batch = pa.record_batch([pa.array(texts)], names=["value"])
    return [row for made in EventReader(rules)([batch]) for row in made.to_pylist()]


def wrapped(sent: Sent) -> str:
    body = {"schema": image(sent.target, sent.schema), "payload": event(sent.value)}
    return json.dumps(body, separators=(",", ":"))


def differences() -> Iterator[str]:
    """Values that are read as others than the source has."""
    for sent in SENT:
        binary = Settings(unavailable=UNAVAILABLE, binary=(sent.said or {}).get("binary"))
        with_schema = rules(sent.target, schemas=True, settings=binary)  # which does not tell it
        forms: list[tuple[Any, Rules]] = [(wrapped(sent), with_schema)]
        if sent.said is not None:
            said = Settings(unavailable=UNAVAILABLE, **sent.said)
            forms.append((event(sent.value), rules(sent.target, settings=said)))
        for text, how in forms:
            try:
                [row] = read(how, text)
            except DataError as error:
                yield f"{sent}: {error}"
                continue
            same = (
                row["v"] == pytest.approx(sent.text)
                if isinstance(sent.text, float)
                else (row["v"] == sent.text)
            )
            if not same or row["unchanged"]:
                yield f"{sent}: {row}"
    for name, target in PLACEHOLDERS.items():
        [row] = read(rules(target), event(form(name)))
        if row["unchanged"] != ["v"] or row["v"] is not None:
            yield f"placeholder of {name}: {row}"
    for value in NO_BASE64:
        with suppress(MisreadError):
            yield f"{value} is read as {decode.from_base64(value)!r}"


PLACEHOLDERS = {
    "text": column("text"),
    "int": column("int4", T.IntegerType(), array=True),
    "date": column("date", array=True),
    "uuid": column("uuid", array=True),
    "texts": column("text", array=True),
    "bytea": column("bytea", T.BinaryType()),
    "byteas": column("bytea", T.BinaryType(), array=True),
    "hstore": column("public.hstore"),
    "map": column("public.hstore"),
}
"""The columns whose placeholder Debezium has a form of its own for."""
NO_BASE64 = ["12.34", "1234=", "99.99", "0.10", "MDk", "MDl=", "cafe\n", "-_8=", "MD k="]


def form(name: str, placeholder: str = UNAVAILABLE) -> Any:
    """As Debezium's class UnchangedToastedPlaceholder has it."""
    data = placeholder.encode()
    return {
        "text": placeholder,
        "int": [*data],
        "date": [*data],
        "uuid": ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
        "texts": [placeholder],
        "bytea": b64(data),
        "byteas": [b64(data)],
        "hstore": json.dumps({placeholder: placeholder}, separators=(",", ":")),
        "map": {placeholder: placeholder},
    }[name]


def test_a_value_is_read_as_the_source_has_it_in_every_form() -> None:
    assert list(differences()) == []


def _scale_of_the_target(sent: Wire) -> decode.Reading:
    return decode.Reading(decode.Kind.NUMERIC, lambda value: decode.decimal(value, 2))


def _lenient(value: str, **_: bool) -> bytes:
    known = re.sub("[^A-Za-z0-9+/]", "", value)
    whole = known[: len(known) // 4 * 4 + len(known) % 4 * (len(known) % 4 != 1)]
    return base64.b64decode(whole + "=" * (-len(whole) % 4))


@pytest.mark.parametrize(
    ("place", "name", "bug"),
    [
        (decode._NAMED, wire.DECIMAL, _scale_of_the_target),
        (
            decode._NAMED,
            TIME + "Timestamp",
            decode._numbers(decode.Kind.TIMESTAMP, clock.micros_of),
        ),
        (placeholders, "_forms", lambda target, name: [name]),
        (decode, "from_base64", _lenient),
        (assumed, "_local", lambda *_: Wire("int64", TIME + "MicroTimestamp")),
    ],
    ids=["scale of the target", "ms as us", "placeholder of int[]", "lenient base64", "ms unsaid"],
)
def test_a_planted_bug_of_the_reading_is_found(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, bug: Any
) -> None:
    if isinstance(place, dict):
        monkeypatch.setitem(place, name, bug)
    else:
        monkeypatch.setattr(place, name, bug)
    assert list(differences())


@given(st.integers(-(10**60), 10**60), st.integers(0, 60))
def test_a_decimal_of_any_size_and_scale_is_exact(number: int, scale: int) -> None:
    sent = Wire("bytes", wire.DECIMAL, (("scale", str(scale)),))
    text = converter(sent, column("numeric"), Settings())(b64(unscaled(number)))
    sign, digits, exponent = Decimal(text).as_tuple()
    assert Decimal((sign, digits, 0)) == number or number == 0
    assert exponent == -scale


@given(st.integers(-2_440_588, 2_145_042_905))
def test_a_date_is_the_same_as_days_and_in_iso_form(days: int) -> None:
    year, rest = clock._civil(days)
    sign = "+" if year > 9999 else ""
    iso = f"{sign}{year:04d}-{rest}Z" if year >= 0 else f"-{-year:04d}-{rest}Z"
    assert clock.days_of_iso(iso) == days


@pytest.mark.parametrize(
    ("sent", "value", "target", "why"),
    [
        (Wire("double"), 99.99, column("numeric"), "Debezium rounds it"),
        (Wire("string"), "99.99", column("bytea", T.BinaryType()), "set binary"),
        (Wire("bytes", wire.DECIMAL, (("scale", "2"),)), "99.99", column("numeric"), "not in base64"),
        (Wire("bytes", wire.DECIMAL, (("scale", "2"),)), "AAA=", column("numeric"), "of a number"),
        (Wire("int64", wire.CONNECT_TIMESTAMP), 0, column("timestamp"), "cut to milliseconds"),
        (Wire("int64", wire.DURATION), 0, column("interval"), "30.4 days"),
        (Wire("string", wire.ZONED_TIME), "06:49:57Z", column("timetz"), "in UTC"),
        (Wire("bytes", wire.BITS, (("length", "20"),)), "Cw==", column("varbit"), "how many there are"),
        (Wire("string", "io.debezium.time.ZonedTimestamp"), "infinity",
         TargetColumn("v", T.TimestampType()), "take the column as STRING"),
        (Wire("string"), "1.239", TargetColumn("v", T.DecimalType(10, 2)), "has more digits"),
        (Wire("int32"), 2**31, column("int2", T.ShortType()), "does not fit into 16 bits"),
        (Wire("double"), 0.1, column("float4", T.FloatType()), "has more digits than real"),
        (Wire("string", "io.debezium.time.Unknown"), "x", column("text"), "not read here"),
        (Wire("array", items=Wire("string")), ["[Ljava.lang.String;@46ad303b"],
         column("text", array=True), "two dimensions"),
        (Wire("array", items=Wire("int64", TIME + "MicroTime")), [0],
         column("time", array=True), "cuts to milliseconds"),
    ],
)  # fmt: skip
def test_what_cannot_be_told_or_held_exactly_is_refused(
    sent: Wire, value: Any, target: TargetColumn, why: str
) -> None:
    with pytest.raises(MisreadError) as refused:
        converter(sent, target, Settings())(value)
    assert why in f"{refused.value.why} {refused.value.remedy}"


@pytest.mark.parametrize(
    ("target", "value", "said", "why"),
    [
        (column("numeric"), 99.99, {"decimals": "precise"}, "JSON number with a point"),
        (column("numeric"), "MDk=", {"decimals": "precise"}, "without its scale"),
        (column("numeric"), "MDk=", {"decimals": "string"}, "is no number"),
        (column("timestamp"), "2026-01-02T03:04:05Z", {"times": "microseconds"}, "sent as text"),
        (column("timestamp"), 1, {"times": "isostring"}, "sent as a number"),
        (column("bytea", T.BinaryType()), "cafe", {"binary": "base64-url-safe"}, None),
        (column("bytea", T.BinaryType()), "zz", {"binary": "hex"}, "is not in hex"),
        (column("bit"), "AQE=", {}, "without their number"),
        (column("float4", T.FloatType()), 0.123456789, {}, "more digits than real"),
        (column("text"), 1.5, {}, "does not tell what it is"),
    ],
)
def test_a_form_that_contradicts_what_is_said_is_refused(
    target: TargetColumn, value: Any, said: dict[str, Any], why: str | None
) -> None:
    how = rules(target, settings=Settings(unavailable=UNAVAILABLE, **said))
    if why is None:  # base64 of both alphabets
        assert read(how, event(value))[0]["v"] == b"q\xa7\xde"
        return
    with pytest.raises(DataError, match=why):
        read(how, event(value))


def test_a_schema_that_changes_is_followed() -> None:
    events = [
        json.dumps({"schema": image(column("numeric"), named("bytes", wire.DECIMAL, scale=scale)),
                    "payload": event(b64(unscaled(75000)))}, separators=(",", ":"))
        for scale in ("2", "4", "2")
    ]  # fmt: skip
    rows = read(rules(column("numeric"), schemas=True), *events)
    assert [row["v"] for row in rows] == ["750.00", "7.5000", "750.00"]


@pytest.mark.parametrize("indent", [None, 1])
def test_an_event_is_read_however_its_json_is_spaced(indent: int | None) -> None:
    sent = SENT[0]
    whole = json.loads(wrapped(sent))
    turned = {"payload": whole["payload"], "schema": whole["schema"]}
    how = rules(sent.target, schemas=True)
    for each in (whole, turned):
        assert read(how, json.dumps(each, indent=indent))[0]["v"] == sent.text


def test_an_event_without_the_schema_that_was_promised_is_refused() -> None:
    with pytest.raises(DataError, match="schemas=True"):
        read(rules(column("text"), schemas=True), event("a"))


def test_columns_of_one_side_only_are_refused_by_name() -> None:
    more = event("a")
    more["after"]["vip"] = True
    with pytest.raises(DataError, match="has the columns vip, which the table does not have"):
        read(rules(column("text")), more)
    assert read(rules(column("text"), ignored=frozenset({"vip"})), more)[0]["v"] == "a"
    assert read(rules(column("text"), extra=True), more)[0]["v"] == "a"
    less = event("a")
    del less["after"]["v"]
    with pytest.raises(DataError, match="lacks the columns v"):
        read(rules(column("text")), less)
    assert read(rules(column("text"), absent=True), less)[0]["unchanged"] == ["v"]


@pytest.mark.parametrize("name", ["op", "lsn", "unchanged"])
def test_a_column_of_the_source_with_a_name_of_our_own_is_refused(name: str) -> None:
    own = event("a")
    own["after"][name] = "refund"
    with pytest.raises(DataError, match=f"columns named {name}"):
        read(rules(column("text"), extra=True), own)


def test_the_position_of_an_incremental_snapshot_is_that_of_its_sequence() -> None:
    row = event("a", "r")
    row["source"] = {"lsn": None, "sequence": '["28784568","28784568"]'}
    assert read(rules(column("text")), row)[0]["lsn"] == 28784568
    row["source"] = {"lsn": None, "sequence": None}
    with pytest.raises(DataError, match="has no position"):
        read(rules(column("text")), row)


def test_a_date_that_a_snapshot_shifts_is_refused_and_a_streamed_one_is_read() -> None:
    sent = -141_422  # of 1582-10-20, and in a snapshot also of 1582-10-10
    assert read(rules(column("date")), event(sent, "u"))[0]["v"] == "1582-10-20"
    with pytest.raises(DataError, match="another calendar"):
        read(rules(column("date")), event(sent, "r"))


def test_an_unreadable_record_is_a_row_for_the_dead_letters_if_asked() -> None:
    good, bad, cut = json.dumps(event("a")), "{not json", json.dumps(event(1.5))
    how = rules(column("text"), letters=True)
    place = [["t"] * 3, [0] * 3, [41, 42, 43]]
    names = ["value", "topic", "partition", "offset"]
    batch = pa.record_batch([pa.array([good, bad, cut]), *map(pa.array, place)], names=names)
    [made] = EventReader(how)([batch])
    rows = made.to_pylist()
    assert [(row["op"], row["lsn"]) for row in rows] == [("u", 7), (None, None), (None, None)]
    assert rows[1]["unchanged"] == ["The record at offset 42 of t-0 is not JSON", bad]
    assert "column v" in rows[2]["unchanged"][0]
    assert rows[2]["id"] is None
    with pytest.raises(DataError, match=r"record at offset 42 of t-0 is not JSON"):
        list(EventReader(rules(column("text")))([batch]))
    truncated = pa.record_batch([pa.array([json.dumps({"op": "t"})])], names=["value"])
    with pytest.raises(DataError, match="its op is t"):
        list(EventReader(how)([truncated]))


AVRO = """{"type": "record", "name": "Envelope", "connect.name": "db.t.Envelope", "fields": [
 {"name": "after", "type": ["null", {"type": "record", "name": "Value", "fields": [
  {"name": "id", "type": "int"}, {"name": "v", "type": ["null", %s], "default": null}%s]}]}]}"""
MICROS = '{"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}'
MILLIS = '{"type": "long", "connect.name": "io.debezium.time.Timestamp"}'


def test_connects_names_in_avro_say_what_values_mean() -> None:
    connect = '{"type": "long", "logicalType": "timestamp-millis", "connect.name": "%s"}'
    for text, sent in (
        (MICROS, Wire("int64", TIME + "MicroTimestamp")),
        (
            connect % wire.CONNECT_TIMESTAMP,
            Wire("int64", wire.CONNECT_TIMESTAMP, (wire.MICROS,)),
        ),
    ):
        wires = wire.row_wires(connect_schema(parsed(AVRO % (text, ""))))
        assert wires == {"id": Wire("int32"), "v": sent}


def test_a_meaning_that_changes_is_no_evolution_of_avro() -> None:
    micros, millis = parsed(MICROS), parsed(MILLIS)
    assert means_another(micros, millis)
    assert not means_another(micros, micros)
    more = parsed(AVRO % (MICROS, ', {"name": "vip", "type": ["null", "boolean"]}'))
    less = parsed(AVRO % (MICROS, ""))
    assert dropped(more, less) == ["vip"]
    assert dropped(less, more) == []


def test_a_column_that_avro_has_more_gets_the_type_that_holds_its_values() -> None:
    precise = {"scale": "2", "connect.decimal.precision": "10"}
    for sent, made in (
        (Wire("bytes", wire.DECIMAL, tuple(precise.items())), T.DecimalType(10, 2)),
        (Wire("bytes", wire.DECIMAL, (("scale", "2"),)), STRING),
        (Wire("struct", wire.VARIABLE_DECIMAL), STRING),
        (Wire("int32", wire.DATE), T.DateType()),
        (Wire("int64", TIME + "MicroTimestamp"), T.TimestampNTZType()),
        (Wire("array", items=Wire("int64")), T.ArrayType(T.LongType())),
    ):
        assert _added_type(sent) == made
