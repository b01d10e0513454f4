"""Files, or a topic, through the runtime into real targets. Usage: moving.py SETTINGS.json

The files hold each row twice; a keyed operator lets the first of each pass. So the target is right only
where sources, state and sinks are of one moment. Prints ``done`` when everything is committed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from abs_core.contracts import RegisterStore, Sink
from abs_core.registers import FileRegister
from abs_core.source import Source
from abs_embedded import Graph, Job, Settings
from abs_embedded.keyed import KeyedContext
from abs_embedded.operators import Row
from abs_embedded.state.local_store import LocalSnapshotStore

ROWS = pa.schema([pa.field("id", pa.int64()), pa.field("value", pa.string())])
MESSAGES = pa.schema([pa.field("key", pa.string()), pa.field("value", pa.string())])
TABLE = "moved"


def first_only(row: Row, at: KeyedContext) -> list[Row]:
    seen = at.states["seen"]
    if seen.get(at.key):
        return []
    seen.put(at.key, True)
    return [row]


def to_messages(batch: pa.RecordBatch) -> pa.RecordBatch:
    texts = [json.dumps(row) for row in batch.to_pylist()]
    return pa.record_batch([batch["id"].cast(pa.string()), texts], schema=MESSAGES)


def from_messages(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(map(json.loads, batch["value"].to_pylist())), ROWS)


def sink_of(kind: str, given: Mapping[str, str], *, own: bool) -> Sink:
    """
    Args:
        own: whether the register lies in the sink's own system.
    """
    if kind == "postgres":
        from abs_sinks.postgres.options import PostgresOptions
        from abs_sinks.postgres.sink import PostgresSink

        return PostgresSink(PostgresOptions.parse(given), ROWS, co_commit=own)
    if kind == "kafka":
        from abs_sinks.kafka.options import KafkaOptions
        from abs_sinks.kafka.sink import KafkaSink

        return KafkaSink(KafkaOptions.parse(given), MESSAGES, co_commit=own)
    from abs_sinks.s3.options import S3Options
    from abs_sinks.s3.sink import S3Sink

    return S3Sink(S3Options.parse(given), ROWS)


def source_of(kind: str, given: Mapping[str, str]) -> Source:
    if kind == "kafka":
        from abs_sources.kafka import KafkaSource, KafkaSourceOptions

        return KafkaSource(KafkaSourceOptions.parse(given))
    from abs_sources.files import FileOptions, FileSource

    return FileSource(FileOptions.parse(given, streaming=False), ROWS)


def main(settings: Mapping[str, Any]) -> None:
    (source,) = settings["source"].items()
    built = Graph("moving", parallelism=2)
    stream = built.source("in", source_of(*source))
    if source[0] == "kafka":
        stream = stream.map("parsed", from_messages)
    rows = stream.key_by("id").process(
        "first", first_only, ROWS, lambda c: {"seen": c.value("seen")}
    )
    for kind, given in settings["sinks"].items():
        sink = sink_of(kind, given, own=len(settings["sinks"]) == 1)
        out = rows.map("messages", to_messages) if kind == "kafka" else rows
        out.sink(kind, sink)
    folder = Path(settings["folder"])
    register: RegisterStore | None = None
    if len(settings["sinks"]) > 1:
        register = FileRegister(folder / "register")
    store = LocalSnapshotStore(folder / "snapshots")
    Job(built, store, register, settings=Settings(interval=0.1)).run()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
