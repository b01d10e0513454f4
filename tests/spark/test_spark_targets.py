"""The sinks of an epoch function, as the driver sees them together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from threading import Barrier

import pyarrow as pa
import pytest

from abs_core.contracts import Sink
from abs_core.errors import RefusedError, UnavailableError
from abs_sinks.door import format_named
from abs_spark.open_sinks import OpenSinks
from abs_spark.sink_spec import SinkSpec

SCHEMA = pa.schema([pa.field("key", pa.string()), pa.field("value", pa.string())])
OPTIONS = {
    "abs-postgres": {
        "url": "postgresql://app@db.example/shop",
        "dbtable": "payments",
        "patience": "1s",
    },
    "abs-kafka": {"kafka.bootstrap.servers": "k.example:9092", "topic": "t", "patience": "2s"},
    "abs-s3": {"path": "s3://bucket/items", "endpoint": "http://s3.example", "patience": "1s"},
}


@pytest.fixture
def targets() -> Iterator[OpenSinks]:
    made = [
        SinkSpec(f := format_named(name), f.parse(given), SCHEMA) for name, given in OPTIONS.items()
    ]
    with closing(OpenSinks(list(OPTIONS), made, "abs-postgres")) as opened:
        yield opened


def test_a_start_asks_all_sinks_at_the_same_time(targets: OpenSinks) -> None:
    met = Barrier(len(OPTIONS))
    assert sorted(targets._ask_each(lambda _: met.wait(60), "job")) == [0, 1, 2]


def test_a_start_tells_of_each_sink_that_refuses(targets: OpenSinks) -> None:
    def ask(sink: Sink) -> str:
        raise RefusedError(f"{type(sink).__name__} refuses.", remedy="none.")

    with pytest.raises(RefusedError, match="PostgresSink refuses") as refused:
        targets._ask_each(ask, "job")
    assert [note.partition(" refuses")[0].split()[-1] for note in refused.value.__notes__] == [
        "KafkaSink",
        "S3Sink",
    ]


def test_who_waits_for_one_of_several_systems_is_told_all_of_their_names(
    targets: OpenSinks,
) -> None:
    patience = targets.patience
    assert patience.seconds == 2.0
    names = ("PostgreSQL at ", "Kafka at k.example:9092", "S3 at http://s3.example")
    for name in names:
        assert name in patience.system

    def call() -> None:
        raise UnavailableError("S3 went away while listing.")

    with pytest.raises(UnavailableError) as raised:
        patience.retry(call)
    for name in names:
        assert name in raised.value.what
