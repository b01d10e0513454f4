"""``write=changes``: deletes are tombstones, and a key's records are in the order of sequenceby."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest

from abs_core.errors import OptionError, RowError, SchemaError
from abs_services import KafkaService
from abs_sinks.kafka import KafkaSink, changes
from abs_sinks.kafka import wal as wal_of_kafka
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.replay import KafkaLetters
from abs_testing.case import Case
from tests.kit.kafka import Variant, make_topic
from tests.kit.kafka_modes import LogHarness, open_log
from tests.planted import planted

pytestmark = pytest.mark.services

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("value", pa.string()),
        ("op", pa.string()),
        ("lsn", pa.int64()),
    ]
)
Change = tuple[str | None, str, str | None, int | None]
"""Key, value, operation, position."""


@pytest.fixture(scope="module")
def bootstrap(kafka: KafkaService) -> str:
    kafka.start()
    return kafka.bootstrap


@contextmanager
def topic(bootstrap: str, variant: Variant, **more: object) -> Iterator[LogHarness]:
    with open_log(bootstrap, variant) as harness:
        given = {"write": "changes", "sequenceby": ("lsn",), **more}
        harness.options = replace(harness.options, **given)  # type: ignore[arg-type]
        own = variant.own_register
        harness.new_sink = partial(KafkaSink, harness.options, SCHEMA, co_commit=own)
        yield harness


def written(case: Case, epoch: int, *tasks: Sequence[Change]) -> None:
    """An epoch of these tasks."""
    run = case.run()
    shares = []
    for partition, changes_of in enumerate(tasks):
        attempt = run.attempt(epoch, partition)
        attempt.writer.write(batch_of(changes_of))
        attempt._rows = len(changes_of)
        shares.append(attempt.pre_commit())
    run.commit(epoch, shares)


def batch_of(given: Sequence[Change]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [dict(zip(SCHEMA.names, change, strict=True)) for change in given], SCHEMA
    )


def by_key(harness: LogHarness) -> dict[str, list[str | None]]:
    """The values of each key in the order of its partition; all of them are in one."""
    found: dict[str, list[str | None]] = defaultdict(list)
    for key, value in harness.records():
        found[(key or b"").decode()].append(None if value is None else value.decode())
    return dict(found)


CELLS = {
    each.name: each
    for each in (
        Variant("wal"),
        Variant("wal", own_register=False),
        Variant("wal", producer="librdkafka"),
    )
}


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("name", CELLS)
def test_a_keys_records_are_in_the_order_of_their_positions(
    bootstrap: str, name: str, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "SORT_BYTES", 10**9 if parts == 1 else 5_000)
    check_order(bootstrap, name)


def check_order(bootstrap: str, name: str) -> None:
    random_ = random.Random(7)
    history = [
        (f"k{random_.randrange(20)}", f"v{lsn}", random_.choice("cuud"), lsn) for lsn in range(300)
    ]
    expected: dict[str, list[str | None]] = defaultdict(list)
    for key, value, operation, _ in history:
        expected[key].append(None if operation == "d" else value)
    with topic(bootstrap, CELLS[name]) as harness, Case(harness) as case:
        shuffled = random_.sample(history, len(history))
        written(case, 0, shuffled[:150], shuffled[150:])
        assert by_key(harness) == expected


def test_records_in_the_order_of_arrival_are_found(bootstrap: str) -> None:
    with planted((wal_of_kafka, "in_order", lambda batches, segments: batches())):
        check_order(bootstrap, "wal")


def test_a_delete_that_keeps_its_value_is_found(bootstrap: str) -> None:
    with planted((changes.Changes, "applied", lambda self, batch: batch)):
        check_order(bootstrap, "wal")


def test_later_epochs_come_later_whatever_their_positions(bootstrap: str) -> None:
    with topic(bootstrap, CELLS["wal"]) as harness, Case(harness) as case:
        written(case, 0, [("a", "late", "u", 9)])
        written(case, 1, [("a", "early", "u", 1)])
        assert by_key(harness) == {"a": ["late", "early"]}
        assert "whatever their positions" in " ".join(case.guarantee.limits)


@pytest.mark.parametrize("name", CELLS)
def test_two_changes_of_one_key_and_position_stop_the_epoch(bootstrap: str, name: str) -> None:
    with topic(bootstrap, CELLS[name]) as harness, Case(harness) as case:
        with pytest.raises(RowError, match="have one position"):
            written(case, 0, [("a", "x", "u", 5), ("b", "x", "u", 5)], [("a", "y", "u", 5)])
        assert harness.records() == []
        written(case, 0, [("a", "x", "u", 5), ("b", "x", "u", 5)], [("a", "x", "u", 5)])
        assert by_key(harness) == {"a": ["x", "x"], "b": ["x"]}


BAD: dict[str, Change] = {
    "key-missing": (None, "v", "u", 1),
    "null": ("a", "v", None, 1),
    "null ": ("a", "v", "u", None),
}


@pytest.mark.parametrize("code", BAD)
def test_a_change_without_key_operation_or_position_is_refused_or_dead(
    bootstrap: str, code: str
) -> None:
    good: Change = ("a", "v", "u", 2)
    with topic(bootstrap, CELLS["wal"]) as harness:
        case = Case(harness)
        with pytest.raises(RowError, match="a change needs one"):
            written(case, 0, [good, BAD[code]])
        case.close()
        dead = f"{harness.topic}-dead"
        make_topic(harness.options.kafka, dead)
        harness.options = replace(harness.options, deadletter=dead, deadlettermax=1.0)
        harness.new_sink = partial(KafkaSink, harness.options, SCHEMA)
        case = Case(harness)
        written(case, 0, [good, BAD[code]])
        assert by_key(harness) == {"a": ["v"]}
        (letter,) = KafkaLetters(harness.options).found()
        assert letter["code"] == code.strip()
        plain = replace(harness.options, write="append", sequenceby=())
        for options in (harness.options, plain):
            with pytest.raises(OptionError, match="is a change"):
                KafkaLetters(options).replay([letter["id"]])
        assert by_key(harness) == {"a": ["v"]}
        case.close()


def test_a_boolean_column_and_other_words_delete(bootstrap: str) -> None:
    given = {"kafka.bootstrap.servers": bootstrap, "topic": "t", "wal": "file:///tmp/none"}
    given |= {"protocol": "wal", "write": "changes", "sequenceby": "lsn"}
    row = {"key": "a", "value": "v", "lsn": 1}
    for more, column in (("gone", True), ("op=D,x", "x")):
        options = KafkaOptions.parse({**given, "applyasdeletes": more})
        batch = pa.RecordBatch.from_pylist([{**row, more.partition("=")[0]: column}])
        planned = changes.plan_changes(batch.schema, options)
        assert planned is not None
        assert planned.applied(batch)["value"].to_pylist() == [None]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (SCHEMA.append(pa.field("partition", pa.int32())), "chooses the partition by the key"),
        (SCHEMA.remove(3), "no column lsn"),
        (SCHEMA.set(3, pa.field("lsn", pa.string())), "ordered as text"),
        (SCHEMA.set(3, pa.field("lsn", pa.float64())), "no order that is sure"),
        (SCHEMA.set(2, pa.field("op", pa.bool_())), "with values"),
    ],
)
def test_columns_that_cannot_be_ordered_are_refused(schema: pa.Schema, told: str) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "wal": "file:///tmp/none"}
    given |= {"protocol": "wal", "write": "changes", "sequenceby": "lsn"}
    with pytest.raises(SchemaError, match=told):
        changes.plan_changes(schema, KafkaOptions.parse(given))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"write": "upsert"}, "not supported"),
        (
            {"write": "changes", "protocol": "wal", "wal": "file:///tmp/n"},
            "needs the option sequenceby",
        ),
        ({"write": "changes", "sequenceby": "a"}, "protocol=2pc cannot write changes"),
        ({"sequenceby": "a"}, "no meaning for write=append"),
        (
            {"write": "changes", "sequenceby": "a", "kafka.partitioner": "random"},
            "spreads the records",
        ),
    ],
)
def test_options_that_cannot_be_kept_are_refused(more: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        KafkaOptions.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", **more})
