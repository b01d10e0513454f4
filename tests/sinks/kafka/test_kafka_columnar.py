"""Columns become record batches that a client of another maker reads; places and sizes are as asked."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from abs_core.errors import OptionError
from abs_sinks.kafka import KafkaOptions
from abs_sinks.kafka.columnar.choice import compression_of
from abs_sinks.kafka.columnar.compression import Compression
from abs_sinks.kafka.columnar.encoder import PIECE_BYTES, RUN, cuts, partitions_of, pieces, placed
from abs_sinks.kafka.columnar.recordbatch import ProducerIdentity, record_batch
from abs_sinks.kafka.headers import (
    NO_HEADERS,
    encoded_headers,
    lengths_of,
    varints,
    zigzag,
)
from abs_sinks.kafka.records import Records

WHO = ProducerIdentity("id", 2**40 + 7, 12)
NOW = 1_700_000_000_123
LATER = st.lists(st.integers(-(2**40), 2**40), min_size=40, max_size=40)
TEXT = st.none() | st.binary(max_size=300)

Sent = tuple[bytes | None, bytes | None]


@given(st.lists(st.integers(0, 2**62), max_size=20))
def test_a_varint_says_its_number_in_as_many_bytes_as_told(numbers: list[int]) -> None:
    column = np.array(numbers, np.int64)
    found = varints(column)
    texts = [found.as_py()] * len(column) if isinstance(found, pa.Scalar) else found.to_pylist()
    assert [_number(text) for text in texts] == numbers
    assert [len(text) for text in texts] == lengths_of(column).tolist()


def test_zigzag_keeps_small_numbers_small_on_both_sides() -> None:
    numbers = np.array([0, -1, 1, -2, 2**31, -(2**31)])
    assert zigzag(numbers).tolist() == [0, 1, 2, 3, 2**32, 2**32 - 1]


@given(
    st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=40),
    st.sampled_from(["none", "gzip"]),
    LATER,
)
def test_another_client_reads_what_was_encoded(
    rows: list[Sent], codec: str, later: list[int]
) -> None:
    keys, values = (pa.array(column, pa.binary()) for column in zip(*rows, strict=True))
    times = np.array(later[: len(rows)]) + NOW
    made = record_batch(keys, values, WHO, times, sequence=77, compression=Compression(codec))
    reader = MemoryRecords(made)
    batch = reader.next_batch()
    assert batch.validate_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (2**40 + 7, 12, 77)
    assert batch.is_transactional
    assert not batch.is_control_batch
    found = list(batch)
    assert [(r.key, r.value) for r in found] == rows
    assert [r.offset for r in found] == list(range(len(rows)))
    assert [r.timestamp for r in found] == times.tolist()
    assert batch.max_timestamp == times.max()
    assert not any(r.headers for r in found)
    assert not reader.has_next()


HEADER = st.tuples(st.text(max_size=80), st.none() | st.binary(max_size=200))


@given(
    st.lists(st.none() | st.lists(HEADER, max_size=4), min_size=1, max_size=30),
    st.lists(HEADER, max_size=2),
    st.integers(0, 3),
)
def test_another_client_reads_each_records_own_headers_and_then_those_of_all(
    rows: list[list[tuple[str, bytes | None]] | None],
    more: list[tuple[str, bytes | None]],
    skip: int,
) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    own = pa.array(
        [None if row is None else [{"key": k, "value": v} for k, v in row] for row in rows], kind
    )[skip:]
    if not len(own):
        return
    values = pa.array([b"%d" % n for n in range(len(own))])
    headers = encoded_headers(own, more)
    made = record_batch(None, values, WHO, np.full(len(own), NOW), sequence=0, headers=headers)
    batch = MemoryRecords(made).next_batch()
    assert batch.validate_crc()
    assert [r.headers for r in batch] == [(row or []) + more for row in rows[skip:]]


def test_records_without_headers_of_their_own_get_those_of_all() -> None:
    headers = encoded_headers(None, [("a", b"1"), ("b", None)])
    values = pa.array([b"x", b"y"])
    made = record_batch(None, values, WHO, np.full(2, NOW), sequence=0, headers=headers)
    batch = MemoryRecords(made).next_batch()
    assert [r.headers for r in batch] == [[("a", b"1"), ("b", None)]] * 2


def test_a_producer_without_a_transactional_id_writes_outside_transactions() -> None:
    who = ProducerIdentity(None, 7, 0)
    made = record_batch(None, pa.array([b"x"]), who, np.array([NOW]), sequence=0)
    batch = MemoryRecords(made).next_batch()
    assert batch.validate_crc()
    assert not batch.is_transactional


@pytest.mark.parametrize("count", [1, 63, 64, 40_000])
def test_batches_of_any_length_and_without_keys_are_read(count: int) -> None:
    values = pa.array([b"%d" % n for n in range(count)])
    made = record_batch(None, values, WHO, np.full(count, NOW), sequence=0)
    batch = MemoryRecords(made).next_batch()
    assert batch.validate_crc()
    assert [(r.key, r.value) for r in batch] == [(None, v.as_py()) for v in values]


def test_a_value_of_megabytes_is_read() -> None:
    value = bytes(range(256)) * 20_000
    made = record_batch(pa.array([b"k"]), pa.array([value]), WHO, np.array([NOW]), sequence=0)
    (record,) = MemoryRecords(made).next_batch()
    assert record.value == value


@given(st.lists(st.none() | st.binary(max_size=20), max_size=50), st.integers(1, 9))
def test_a_key_goes_where_java_puts_it_and_every_record_somewhere(
    keys: list[bytes | None], partitions: int
) -> None:
    column = pa.array(keys, pa.binary())
    found = placed(_records(column), partitions, by_key=True, turn=5)
    wanted = partitions_of(column, partitions)
    assert all(f == w for f, w in zip(found, wanted, strict=True) if w >= 0)
    assert ((found >= 0) & (found < partitions)).all()


def test_a_partition_that_is_named_goes_before_the_key() -> None:
    keys = pa.array([b"21"] * 3)
    asked = pa.array([4, None, 0], pa.int32())
    found = placed(_records(keys, asked), 10, by_key=True, turn=0)
    assert found.tolist() == [4, 0, 0]


def test_records_without_a_key_take_turns_over_all_partitions() -> None:
    values = pa.array([b""] * (6 * RUN))
    records = Records(values, None, None, None, None, None)
    found = placed(records, 3, by_key=True, turn=0)
    assert np.bincount(found).tolist() == [2 * RUN] * 3
    later = placed(records, 3, by_key=True, turn=RUN)
    assert later[0] == 1


@given(
    st.lists(st.tuples(st.integers(0, 4), st.binary(max_size=50)), max_size=60),
    st.integers(100, 400),
)
def test_cuts_keep_every_record_in_its_order_and_batches_within_their_size(
    rows: list[tuple[int, bytes]], most: int
) -> None:
    places = np.array([place for place, _ in rows], np.int32)
    keys = pa.array([b"%d" % n for n in range(len(rows))], pa.binary())
    records = Records(pa.array([v for _, v in rows], pa.binary()), keys, None, None, None, None)
    got: dict[int, list[Sent]] = defaultdict(list)
    for cut in cuts(records, NO_HEADERS, places, NOW, most):
        assert cut.keys is not None
        got[cut.partition] += zip(cut.keys.to_pylist(), cut.values.to_pylist(), strict=True)
        made = record_batch(cut.keys, cut.values, WHO, cut.times, sequence=0)
        assert len(made) <= most or len(cut.values) == 1
    wanted: dict[int, list[Sent]] = defaultdict(list)
    for number, (place, value) in enumerate(rows):
        wanted[place].append((b"%d" % number, value))
    assert got == wanted


def test_a_timestamp_stays_with_its_record_and_what_has_none_gets_the_time() -> None:
    values = pa.array([b"%d" % n for n in range(6)])
    times = pa.array([5, None, 3, 9, None, 1])
    records = Records(values, None, None, None, None, times)
    found = list(cuts(records, NO_HEADERS, np.array([1, 0, 1, 0, 1, 0], np.int32), NOW, 10_000))
    rows = {v: t for c in found for v, t in zip(c.values.to_pylist(), c.times, strict=True)}
    assert rows == {b"0": 5, b"1": NOW, b"2": 3, b"3": 9, b"4": NOW, b"5": 1}


def test_cuts_are_no_smaller_than_they_must_be() -> None:
    records = Records(pa.array([bytes(1000)] * 100), None, None, None, None, None)
    found = list(cuts(records, NO_HEADERS, np.zeros(100, np.int32), NOW, 10_500))
    assert len(found) == 10


def test_compression_and_sizes_are_librdkafkas_settings() -> None:
    options = _options(
        **{
            "kafka.compression.type": "zstd",
            "kafka.compression.level": "3",
            "kafka.batch.size": "50000",
            "kafka.message.max.bytes": "2000000",
        }
    )
    assert compression_of(options.kafka) == Compression("zstd", 3)
    assert options.kafka.batch_size_bytes == 50_000
    assert compression_of(_options().kafka) == Compression()
    as_they_are = {"kafka.compression.codec": "snappy", "kafka.compression.level": "3"}
    assert compression_of(_options(**as_they_are).kafka) == Compression("snappy")


def test_what_does_not_get_smaller_is_sent_as_it_is() -> None:
    noise = memoryview(np.random.default_rng(1).bytes(300_000))
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        assert Compression(codec)(noise) == (0, noise)
        bits, small = Compression(codec)(memoryview(bytes(300_000)))
        assert bits
        assert len(small) < 30_000


@pytest.mark.parametrize("rows", [0, 1, 7, 5_000])
def test_pieces_are_the_records_and_of_bounded_size(rows: int) -> None:
    values = pa.array([b"%06d" % n * 2_000 for n in range(rows)], pa.binary())
    times = pa.array(range(rows), pa.int64())
    found = list(pieces(Records(values, None, None, None, None, times)))
    assert [v for part in found for v in part.values.to_pylist()] == values.to_pylist()
    stamps = [part.timestamps for part in found if part.timestamps is not None]
    assert [t for part in stamps for t in part.to_pylist()] == times.to_pylist()
    assert all(part.values.nbytes <= 1.1 * PIECE_BYTES for part in found)


@pytest.mark.parametrize(
    ("given_", "told"),
    [
        ({"kafka.ssl.crl.location": "/no/such/list"}, r"does not heed kafka\.ssl\.crl\.location"),
        ({"topic": None}, "writes to one topic"),
        ({"kafka.partitioner": "fnv1a"}, r"kafka\.partitioner=fnv1a"),
        (
            {"kafka.compression.type": "gzip", "kafka.compression.level": "12"},
            "gzip has no level 12",
        ),
        ({"producer": "java"}, "librdkafka"),
    ],
)
def test_what_it_does_not_do_is_refused_with_a_way_out(
    given_: dict[str, str | None], told: str
) -> None:
    with pytest.raises(OptionError, match=told):
        _options(**given_)


def _options(**more: str | None) -> KafkaOptions:
    given_ = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "topic": "t",
        "producer": "columnar",
        **more,
    }
    return KafkaOptions.parse({name: text for name, text in given_.items() if text is not None})


def _records(keys: pa.Array, partitions: pa.Array | None = None) -> Records:
    return Records(pa.array([b""] * len(keys), pa.binary()), keys, None, None, partitions, None)


def _number(text: bytes) -> int:
    return sum((byte & 0x7F) << (7 * place) for place, byte in enumerate(text))
