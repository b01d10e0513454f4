"""What is told of attempts that no winners record has decided; no broker is asked."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from abs_clients.kafka.attempts import HEADER
from abs_core.model import HandleName
from abs_sources.kafka import undecided as module
from abs_sources.kafka.undecided import Undecided, undecided

ONE, TWO, DONE = (HandleName("0123456789abcdef", "job", 1, epoch, 0, "abc") for epoch in range(3))
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def batch(first: int, *records: tuple[HandleName | None, int]) -> pa.RecordBatch:
    """Records from an offset on: their attempts, and times in ms."""
    rows = len(records)
    own = {"key": "other", "value": b"x"}
    headers = [
        [own] if handle is None else [own, {"key": HEADER, "value": str(handle).encode()}]
        for handle, _ in records
    ]
    times = [datetime.fromtimestamp(ms / 1000, UTC) for _, ms in records]
    return pa.record_batch(
        {
            "topic": ["t"] * rows,
            "partition": pa.array([3] * rows, pa.int32()),
            "offset": list(range(first, first + rows)),
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
            "headers": pa.array(headers, HEADERS),
        }
    )


def test_undecided_attempts_are_told_with_all_of_their_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = [
        batch(10, (None, 1), (TWO, 5000), (ONE, 7000), (DONE, 1), (ONE, 8000)),
        batch(20, (ONE, 6000), (ONE, 9000)),
    ]
    asked = list[Any]()
    winners = SimpleNamespace(counts=lambda handle: True if handle == DONE else None)
    monkeypatch.setattr(module, "KafkaSource", asked.append)
    monkeypatch.setattr(module, "_batches", lambda _: batches)
    attempts = SimpleNamespace(winners=lambda: winners)
    monkeypatch.setattr(module, "attempt_filter", lambda *_: attempts)
    found = undecided({"bootstrap.servers": "a:1"}, "t")
    assert found == [
        Undecided(ONE, 4, "t-3 offset 12", 6000),
        Undecided(TWO, 1, "t-3 offset 11", 5000),
    ]
    [options] = asked
    assert (options.winners, options.headers) == (False, True)


def test_what_is_decided_while_it_is_read_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([None, True])

    def winners() -> Any:
        at = next(looks)
        return SimpleNamespace(counts=lambda _: at)

    monkeypatch.setattr(module, "KafkaSource", lambda _: None)
    monkeypatch.setattr(module, "_batches", lambda _: [batch(0, (ONE, 1)), batch(1, (ONE, 2))])
    monkeypatch.setattr(module, "attempt_filter", lambda *_: SimpleNamespace(winners=winners))
    assert undecided({"bootstrap.servers": "a:1"}, "t") == []
