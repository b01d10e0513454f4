"""The keyed count in PyFlink, run by an interpreter that has it; imports nothing of ours.

Waits for lines ``{"form": ..., "workers": N}``: ``record`` is the DataStream API with a Python function
and keyed state, ``sql`` is ``COUNT(*) ... GROUP BY``, which the JVM runs. Seconds are from the
submission of the job to its end; Flink has no source in memory, so reading the file is in them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.table import EnvironmentSettings, TableEnvironment

END = (1 << 63) - 2


class Count(KeyedProcessFunction):  # type: ignore[misc]
    """Counts in keyed state; a timer at the end of the data emits."""

    def open(self, context: Any) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, context: Any) -> tuple[()]:
        before = self.count.value()
        if before is None:
            context.timer_service().register_event_time_timer(END)
        self.count.update((before or 0) + 1)
        return ()

    def on_timer(self, timestamp: int, context: Any) -> Iterator[tuple[str, int]]:
        yield context.get_current_key(), self.count.value()


def by_record(path: str, workers: int) -> dict[str, int]:
    own = Configuration()
    own.set_string("python.executable", sys.executable)  # of the workers; else what PATH has
    env = StreamExecutionEnvironment.get_execution_environment(own)
    env.set_parallelism(workers)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), path).build()
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "keys", Types.STRING())
    kind = Types.TUPLE([Types.STRING(), Types.LONG()])
    counted = stream.key_by(lambda key: key, Types.STRING()).process(Count(), kind)
    with counted.execute_and_collect() as rows:
        return {row[0]: row[1] for row in rows}


def by_sql(path: str, workers: int) -> dict[str, int]:
    table = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    table.get_config().set("parallelism.default", str(workers))
    table.execute_sql(
        "CREATE TABLE words (word STRING) WITH "
        f"('connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'csv')"
    )
    # MAX over the running counts would be a second aggregate: a changelog's last row is the count.
    found = table.execute_sql("SELECT word, COUNT(*) FROM words GROUP BY word")
    counts: dict[str, int] = {}
    with found.collect() as rows:
        for row in rows:
            counts[row[0]] = max(row[1], counts.get(row[0], 0))
    return counts


def main() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        asked = json.loads(line)
        run = by_sql if asked["form"] == "sql" else by_record
        began = time.perf_counter()
        counts = run(sys.argv[1], asked["workers"])
        seconds = time.perf_counter() - began
        digest = sha256(json.dumps(sorted(counts.items())).encode()).hexdigest()
        sys.stdout.write(json.dumps({"seconds": seconds, "digest": digest}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
