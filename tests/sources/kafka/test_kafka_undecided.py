"""What is told of attempts that no winners record has decided; no broker is asked."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from abs_clients.kafka.attempts import HEADER, Decided, Winners
from abs_core.model import HandleName
from abs_sources.kafka.undecided import Undecided, undecided_in

ONE, TWO = (HandleName("0123456789abcdef", "job", 2, epoch, 0, "abc") for epoch in range(2))
DONE = HandleName("0123456789abcdef", "job", 1, 2, 0, "abc")
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


def decides(*handles: HandleName) -> Winners:
    """What has been read where these are the winners of their epochs."""
    records = (Decided(h.register, h.job, h.generation, h.epoch, (h,)).to_bytes() for h in handles)
    return Winners().read(records)


def test_undecided_attempts_are_told_with_all_of_their_records() -> None:
    batches = [
        batch(10, (None, 1), (TWO, 5000), (ONE, 7000), (DONE, 1), (ONE, 8000)),
        batch(20, (ONE, 6000), (ONE, 9000)),
    ]
    assert undecided_in(batches, lambda: decides(DONE)) == [
        Undecided(ONE, 4, "t-3 offset 12", 6000),
        Undecided(TWO, 1, "t-3 offset 11", 5000),
    ]


def test_what_is_decided_while_it_is_read_is_not_told() -> None:
    looks = iter([decides(), decides(ONE)])
    batches = [batch(0, (ONE, 1)), batch(1, (ONE, 2))]
    assert undecided_in(batches, lambda: next(looks)) == []
