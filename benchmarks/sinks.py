"""Our sink, as the benchmarks without Spark build it."""

from __future__ import annotations

import pyarrow as pa

from abs_sinks.postgres import PostgresOptions, PostgresSink
from benchmarks.target import Target

PROTOCOLS = ("2pc", "wal", "idempotent")


def make_sink(target: Target, protocol: str, schema: pa.Schema) -> PostgresSink:
    """The sink with its default options; ``idempotent`` upserts by ``id``."""
    given = {**target.options, "protocol": protocol}
    if protocol == "idempotent":
        given |= {"write": "upsert", "key": "id"}
    return PostgresSink(PostgresOptions.parse(given), schema)
