"""Debezium's events as Python's values, from JSON with and without a schema, and from Avro."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from abs_clients.arrow import is_list, with_inner
from abs_spark.cdc.misread import MisreadError
from abs_spark.cdc.wire import Wire, row_wires

OPERATIONS = ("c", "u", "d", "r")
_WHOLE_TABLE = ("t", "m")
_SKIP = (
    "truncates (t) and messages (m) cannot be applied: set skipped.operations=t in Debezium, or filter "
    "such records"
)
_KEPT = 64
"""Schemas that are kept; a topic has one at a time, and new ones as its tables change."""
_BEGIN = '{"schema":{'
_BETWEEN = ',"payload":'


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Args:
        row: the image that counts: of a delete the one before.
        committed: milliseconds since 1970 at which the source committed it (of a snapshot: read it).
        wires: how the row's columns are sent; None: the event has no schema.
    """

    op: str
    row: Mapping[str, Any]
    position: int
    commit: int
    committed: int | None
    wires: Mapping[str, Wire] | None


class JsonEvents:
    """Reads events of JSON; keeps the schemas that it has seen, which stand before each payload."""

    def __init__(self) -> None:
        self._decoder = json.JSONDecoder(parse_constant=_refuse_constant)
        self._known: OrderedDict[str, Mapping[str, Wire]] = OrderedDict()
        self._alike: dict[tuple[tuple[str, Wire], ...], Mapping[str, Wire]] = {}
        self._last = "\0"

    def read(self, value: str | bytes) -> Event:
        """The event; MisreadError: it is none."""
        try:
            text = value.decode() if isinstance(value, bytes) else value
            wires, payload = self._payload(text)
        except (ValueError, RecursionError):
            raise MisreadError("is not JSON") from None
        return event(payload, wires)

    def _payload(self, text: str) -> tuple[Mapping[str, Wire] | None, Any]:
        head = self._last
        if not (text.startswith(head) and text.endswith("}")):
            own_head = self._head(text)
            if own_head is None:
                whole = self._decoder.decode(text)
                return self._bare(whole)
            head = self._last = own_head
        return self._known[head], self._decoder.decode(text[len(head) : -1])

    def _head(self, text: str) -> str | None:
        """The text before the payload, whose schema is known then; None: there is none."""
        if not text.startswith(_BEGIN) or not text.endswith("}"):
            return None
        schema, end = self._decoder.raw_decode(text, len(_BEGIN) - 1)
        if not text.startswith(_BETWEEN, end):
            return None
        head = text[: end + len(_BETWEEN)]
        if head not in self._known:
            self._known[head] = self._wires(schema)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return head

    def _bare(self, whole: Any) -> tuple[Mapping[str, Wire] | None, Any]:
        """An event without a schema before it, however it is written."""
        if isinstance(whole, dict) and whole.keys() <= {"schema", "payload"} and whole:
            schema = whole.get("schema")
            return None if schema is None else self._wires(schema), whole.get("payload")
        return None, whole

    def _wires(self, schema: Any) -> Mapping[str, Wire]:
        """The types of the row's columns; of equal schemas the same object."""
        try:
            wires = row_wires(schema)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise MisreadError("has a schema that is none of a change of a row") from None
        return self._alike.setdefault(tuple(wires.items()), wires)


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def event(payload: Any, wires: Mapping[str, Wire] | None) -> Event:
    """The event of a payload; MisreadError: it is no change of a row, or has no position."""
    if not isinstance(payload, Mapping):
        raise MisreadError("is no event of Debezium")
    op = payload.get("op")
    if op not in OPERATIONS:
        error = NoChangeError if op in _WHOLE_TABLE else MisreadError
        raise error(f"is no change of a row: its op is {'NULL' if op is None else op}", _SKIP)
    row = payload.get("before" if op == "d" else "after")
    if not isinstance(row, Mapping):
        raise MisreadError(f"has no row {'before' if op == 'd' else 'after'} the change")
    source = payload.get("source")
    if not isinstance(source, Mapping):
        raise MisreadError("has no source")
    commit, last = _sequence(source.get("sequence"))
    position = source.get("lsn")
    if position is None:
        position = last  # of an incremental snapshot
    if type(position) is not int:
        raise MisreadError(
            "has no position (source.lsn)", "events of Debezium's connector for PostgreSQL have one"
        )
    at = source.get("ts_ms")
    return Event(op, row, position, commit, at if type(at) is int else None, wires)


class NoChangeError(MisreadError):
    """A record is a change of a table, or of none: it stops the query, also with dead letters."""


def _sequence(text: Any) -> tuple[int, int | None]:
    """The position of the last commit, 0 in a snapshot; and the newest one of the event."""
    try:
        numbers = [None if n is None else int(n) for n in json.loads(text)] if text else []
    except (ValueError, TypeError):
        raise MisreadError("has a source.sequence that is no list of numbers") from None
    there = [number for number in numbers if number is not None]
    return (numbers[0] if numbers else None) or 0, max(there, default=None)


def plain(kind: pa.DataType) -> pa.DataType:
    """The type with whole numbers for dates and times, which Python's own cannot all hold."""
    types = pa.types
    if types.is_timestamp(kind) or types.is_time64(kind) or types.is_duration(kind):
        return pa.int64()
    if types.is_date32(kind):
        return pa.int32()
    if is_list(kind) or types.is_struct(kind):
        return with_inner(kind, plain)
    return kind
