"""A target travels to every task of every epoch, and must be known again there."""

from __future__ import annotations

import pyarrow as pa
from pyspark import cloudpickle

from abs_sinks.postgres.door import FORMAT
from abs_spark.sink_spec import SinkSpec


def test_a_target_that_is_unpickled_again_is_the_same_one() -> None:
    """Otherwise each epoch builds its run, and its connections, anew."""
    given = {"url": "postgresql://app:secret@db.example/shop", "dbtable": "payments"}
    target = SinkSpec(FORMAT, FORMAT.parse(given), pa.schema([("id", pa.int64())]))
    pickled = cloudpickle.dumps(target)  # type: ignore[no-untyped-call]
    first, second = cloudpickle.loads(pickled), cloudpickle.loads(pickled)
    assert first == second == target
    assert hash(first) == hash(second)
