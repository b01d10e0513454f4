"""The sinks of an epoch function, as the driver sees them together."""

from __future__ import annotations

import pyarrow as pa
import pytest

from abs_core.errors import UnavailableError
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


def test_who_waits_for_one_of_several_systems_is_told_all_of_their_names() -> None:
    made = [
        SinkSpec(f := format_named(name), f.parse(given), SCHEMA) for name, given in OPTIONS.items()
    ]
    targets = OpenSinks(list(OPTIONS), made, "abs-postgres")
    patience = targets.patience
    targets.close()
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
