"""Reads a partition as its log has it: which transactions are committed, whatever is still open.

A reader with read_committed stops at the first open transaction. For a test that stands behind one,
this tells what is committed all the same, from the markers in the log (KIP-98, control records).
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import kafka.errors as errors
from kafka.protocol.consumer import FetchRequest
from kafka.record import MemoryRecords

from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.routing import leaders_of
from abs_clients.kafka.settings import Settings

_FETCH_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record of the log."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def committed(settings: Settings, topic: str, partition: int, end: int) -> list[LogRecord]:
    """Records before ``end`` that are committed, or in no transaction, in the order of commit."""
    found: list[LogRecord] = []
    waiting: dict[int, list[LogRecord]] = defaultdict(list)
    for batch in _batches(settings, topic, partition, end):
        if batch.is_control_batch:
            for record in batch:
                _, kind = struct.unpack(">hh", record.key[:4])
                ended = waiting.pop(batch.producer_id, [])
                found += ended if kind == 1 else []
            continue
        records = [
            LogRecord(r.offset, _bytes(r.key), _bytes(r.value), tuple(r.headers)) for r in batch
        ]
        if batch.is_transactional:
            waiting[batch.producer_id] += records
        else:
            found += records
    return found


def _batches(settings: Settings, topic: str, partition: int, end: int) -> Iterator[Any]:
    at = 0
    while at < end:
        data = _fetch(settings, topic, partition, at)
        records = MemoryRecords(data)
        before = at
        while records.has_next():
            batch = records.next_batch()
            if batch.base_offset >= end:
                return
            yield batch
            at = batch.next_offset
        assert at > before, f"{topic}-{partition} gives nothing at {at}, before its end {end}"


def _fetch(settings: Settings, topic: str, partition: int, offset: int) -> bytes:
    async def work(manager: Any) -> bytes:
        leaders = await leaders_of(manager, [(topic, partition)])
        request = FetchRequest.FetchTopic
        place = request.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
        )
        response = await manager.send(
            FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                max_bytes=_FETCH_BYTES,
                isolation_level=0,
                topics=[request(topic=topic, partitions=[place])],
                max_version=11,
            ),
            node_id=next(iter(leaders)),
        )
        found = response.responses[0].partitions[0]
        kind = errors.for_code(found.error_code)
        if kind is not errors.NoError:
            raise kind(f"{topic}-{partition}")
        return bytes(found.records or b"")

    return cluster(settings).run("reading a log", work)


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
