"""The columns of records, and which attempts are asked about again; no broker is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Message

from abs_clients.kafka.attempts import HEADER, Decided
from abs_clients.kafka.settings import Settings
from abs_core.errors import DataError, ReplayMismatchError
from abs_core.model import HandleName
from abs_sources.kafka import KafkaSourceOptions
from abs_sources.kafka.attempt_filter import AttemptFilter, SideTopic
from abs_sources.kafka.columns import UNREADABLE, Headers, attempt_of, batch_of, headers_of
from abs_testing.case import raises

OPTIONS = KafkaSourceOptions(Settings.of({"bootstrap.servers": "127.0.0.1:1"}))
GREATEST = (2**63 - 1) // 1000


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


HANDLE = HandleName("0123456789abcdef", "job", 1, 0, 0, "abc")
OTHER = Decided(HANDLE.register, HANDLE.job, 0, 0, ()).to_bytes()
DECISION = Decided(HANDLE.register, HANDLE.job, 1, 0, (HANDLE,)).to_bytes()


class Side(SideTopic):
    """A side topic in memory, which ends later at each look.

    Args:
        decided: the offset of the record that decides.
        ends: the end, look by look.
    """

    def __init__(self, decided: int, ends: Sequence[int], first: int = 0) -> None:
        self.name, self.ends, self.parts = "t.abs-winners", list(ends), list[tuple[int, int]]()
        self.ids = ["id"]
        self._decided, self._first = decided, first

    def id(self) -> str:
        return self.ids.pop(0) if len(self.ids) > 1 else self.ids[0]

    def first(self) -> int:
        return self._first

    def end(self) -> int:
        return self.ends.pop(0)

    def values(self, id_: str, start: int, end: int) -> Iterator[bytes | None]:
        self.parts.append((start, end))
        for offset in range(start, end):
            yield DECISION if offset == self._decided else OTHER


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
    needs: int, ends: list[int], read: list[list[tuple[int, int]]]
) -> None:
    side = Side(needs - 1, ends)
    filter_ = AttemptFilter(side)
    for of_call in read:
        side.parts.clear()
        result = filter_.filter(pa.array([str(HANDLE).encode()], pa.binary()))
        assert side.parts == of_call
    assert (result.undecided is None) is (needs <= max(ends))
    assert side.ends == [], "and asked no more often than that"


@pytest.mark.parametrize(("first", "complete"), [(0, True), (1, False)])
def test_decisions_are_complete_where_the_side_topic_has_its_first_record(
    first: int, complete: bool
) -> None:
    assert AttemptFilter(Side(9, [first], first)).winners().complete is complete


def test_a_side_topic_that_was_made_anew_decides_nothing() -> None:
    side = Side(9, [0, 0, 0])
    side.ids = ["first", "first", "second"]
    filter_ = AttemptFilter(side)
    filter_.winners()
    filter_.winners()
    assert "created again" in raises(ReplayMismatchError, filter_.winners).what
