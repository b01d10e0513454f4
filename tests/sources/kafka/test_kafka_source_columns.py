"""The columns of records, and which attempts are asked about again; no broker is asked."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Message

from abs_clients.kafka.attempts import HEADER, FilterResult
from abs_clients.kafka.settings import Settings
from abs_core.errors import DataError
from abs_sources.kafka import KafkaSourceOptions, attempt_filter
from abs_sources.kafka.attempt_filter import AttemptFilter, decided_until
from abs_sources.kafka.columns import UNREADABLE, Headers, attempt_of, batch_of, headers_of
from abs_sources.kafka.offsets import Range
from abs_testing.case import raises

OPTIONS = KafkaSourceOptions(Settings.of({"bootstrap.servers": "127.0.0.1:1"}))
GREATEST = (2**63 - 1) // 1000
Patch = pytest.MonkeyPatch


def message(headers: Any = None, millis: int = 5, kind: int = 1) -> Message:
    return Message(
        topic="t", partition=3, offset=7, key=b"k", value=b"v", headers=headers,
        timestamp=(kind, millis),
    )  # fmt: skip


def columns(given: Sequence[Message], *, shown: bool, hidden: str | None = None) -> pa.RecordBatch:
    headers = headers_of(given) if shown else None
    offsets = np.arange(7, 7 + len(given))
    return batch_of(given, offsets, "t", 3, headers=headers, hidden=hidden)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_greatest_times_of_the_type_are_read_and_greater_ones_refused(sign: int) -> None:
    times = columns([message(millis=sign * GREATEST)], shown=False).column("timestamp")
    assert times.cast(pa.int64()).to_pylist() == [sign * GREATEST * 1000]
    beyond = [message(), message(millis=sign * (GREATEST + 1))]
    error = raises(DataError, lambda: columns(beyond, shown=False))
    assert f"a record time of {sign * (GREATEST + 1)} milliseconds" in error.what


@pytest.mark.parametrize(("kind", "shown"), [(1, 0), (2, 1), (0, -1)])
def test_kinds_of_time_are_counted_as_java_does(kind: int, shown: int) -> None:
    batch = columns([message(kind=kind)], shown=False)
    assert batch.column("timestampType").to_pylist() == [shown]


def test_headers_are_shown_but_for_the_hidden_one_and_none_is_null() -> None:
    given: list[Headers | None] = [
        None,
        [],
        [("a", b"1"), ("a", None), (HEADER, b"x")],
        [(HEADER, b"x")],
    ]
    read = columns([message(each) for each in given], shown=True, hidden=HEADER)
    shown = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert read.column("headers").to_pylist() == [None, None, shown, None]
    whole = columns([message(given[3])], shown=True)
    assert whole.column("headers").to_pylist() == [[{"key": HEADER, "value": b"x"}]]


@pytest.mark.parametrize(
    ("headers", "attempt"),
    [
        (None, None),
        ([], None),
        ([("a", b"1")], None),
        ([(HEADER, b"x"), ("a", b"1")], b"x"),
        ([(HEADER, b"x"), (HEADER, b"y")], b"y"),
    ],
)
def test_the_last_header_of_an_attempt_names_it(
    headers: Headers | None, attempt: bytes | None
) -> None:
    assert attempt_of(message(), headers) == attempt


def test_headers_that_cannot_be_read_are_an_error_where_they_are_asked_for() -> None:
    unread = message()
    assert "not UTF-8" in raises(DataError, lambda: attempt_of(unread, UNREADABLE)).what
    show = lambda: batch_of([unread], np.arange(1), "t", 3, headers=[UNREADABLE])  # noqa: E731
    assert "at offset 7 of t-3" in raises(DataError, show).what
    assert batch_of([unread], np.arange(1), "t", 3, headers=None).num_rows == 1


class Decisions:
    """As ``Winners``: undecided until so many records of the side topic are read."""

    def __init__(self, needs: int) -> None:
        self.needs, self.values = needs, list[object]()

    def read(self, values: Sequence[object]) -> None:
        self.values += values

    def filter(self, _: object) -> FilterResult:
        undecided: Any = None if len(self.values) >= self.needs else 0
        return FilterResult(pa.array([True]), 0, undecided)


@pytest.mark.parametrize(
    ("needs", "ends", "read"),
    [
        (1, [2], [[(0, 2)], []]),  # what is decided is not asked about again
        (3, [2, 2, 3], [[(0, 2)], [(2, 3)]]),
        (9, [2, 1, 4], [[(0, 2)], [(2, 4)]]),  # a broker that is behind takes nothing back
        (9, [0, 0, 0], [[], []]),
    ],
)
def test_the_side_topic_is_read_on_at_an_undecided_record_only(
    needs: int, ends: list[int], read: list[list[tuple[int, int]]], monkeypatch: Patch
) -> None:
    parts = list[tuple[int, int | None]]()

    def rest(part: Range) -> list[pa.RecordBatch]:
        parts.append((part.start, part.end))
        assert part.end is not None
        return [pa.record_batch({"value": [b"x"] * (part.end - part.start)})]

    filter_ = AttemptFilter(OPTIONS, "t")
    coming = iter(ends)
    asked = SimpleNamespace(
        topics=lambda *_: {filter_._side: SimpleNamespace(id="id")},
        first=lambda places: dict.fromkeys(places, 0),
        end=lambda places: dict.fromkeys(places, next(coming)),
    )
    monkeypatch.setattr(attempt_filter, "lookup", lambda _: asked)
    monkeypatch.setattr(attempt_filter, "Winners", lambda **_: Decisions(needs))
    monkeypatch.setattr(attempt_filter, "KafkaReader", lambda _, part: part)
    monkeypatch.setattr(attempt_filter, "closing", nullcontext)
    monkeypatch.setattr(attempt_filter, "rest_until_undecided", rest)
    for of_call in read:
        parts.clear()
        result = filter_.filter(pa.array([b"x"], pa.binary()))
        assert parts == of_call
    assert (result.undecided is None) is (needs <= max(ends))
    assert next(coming, None) is None, "and asked no more often than that"


@pytest.mark.parametrize(("first", "complete"), [(0, True), (1, False)])
def test_decisions_are_complete_where_the_side_topic_has_its_first_record(
    first: int, complete: bool, monkeypatch: Patch
) -> None:
    filter_ = AttemptFilter(OPTIONS, "t")
    asked = SimpleNamespace(
        topics=lambda *_: {filter_._side: SimpleNamespace(id="id")},
        first=lambda places: dict.fromkeys(places, first),
        end=lambda places: dict.fromkeys(places, first),
    )
    monkeypatch.setattr(attempt_filter, "lookup", lambda _: asked)
    assert filter_.winners().complete is complete


def test_a_range_is_decided_as_far_as_it_can_be_read(monkeypatch: Patch) -> None:
    reader: Any = SimpleNamespace(position=Range("t", "id", 0, 5, 9).split)

    def rest(_: object) -> Any:
        for offset in (6, 7):
            reader.position = Range("t", "id", 0, offset, 9).split
            yield offset

    def opened(*_: object, waits: bool) -> Any:
        assert waits, "it stops at an undecided record, and does not end with an error"
        return reader

    monkeypatch.setattr(attempt_filter, "KafkaReader", opened)
    monkeypatch.setattr(attempt_filter, "attempt_filter", lambda *_: SimpleNamespace(filter=None))
    monkeypatch.setattr(attempt_filter, "closing", nullcontext)
    monkeypatch.setattr(attempt_filter, "rest_until_undecided", rest)
    assert decided_until(OPTIONS, Range("t", "id", 0, 5, 9)) == 7
