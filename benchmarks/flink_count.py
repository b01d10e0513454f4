"""The keyed count in PyFlink, run by an interpreter that has it; imports nothing of ours.

Waits for lines ``{"form": ..., "workers": N, "folder": PATH}`` and counts the keys in the files of that
folder, one a line: ``function`` is the DataStream API with a Python function and keyed state, ``sql``
is ``COUNT(*) ... GROUP BY``, which the JVM runs. Seconds are from the submission of the job to its end,
its start included: ``keyed_count_flink`` takes that out.

Set as by a user who wants throughput, without checkpoints. Python functions run in processes: in
threads of the JVM (``python.execution-mode: thread``) they were slower, and with two workers more so.
Nothing is emitted but the last count of each key, and that comes as one Arrow table: row by row, a
result takes milliseconds a key. Arrow tables as a source (``from_pandas``) were no faster than files.
There is no batched function: a pandas aggregate needs a window.
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
from pyflink.table import EnvironmentSettings, StreamTableEnvironment, Table, TableEnvironment

END = (1 << 63) - 2

FUNCTION = {
    "pipeline.object-reuse": "true",
    "python.executable": sys.executable,  # of the workers; else what PATH has
    "python.metric.enabled": "false",
    # All keys, and no end of a bundle within seconds: each writes what has changed to the JVM.
    "python.state.cache-size": "10000",
    "python.fn-execution.bundle.size": "1000000",
    "python.fn-execution.bundle.time": "10000",
}
SQL = {
    "pipeline.object-reuse": "true",
    # Counts within a task first, then by key; a million rows, or a second, at once.
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "1000000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
}


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


def by_function(folder: str, workers: int) -> Table:
    own = Configuration()
    for name, value in FUNCTION.items():
        own.set_string(name, value)
    env = StreamExecutionEnvironment.get_execution_environment(own)
    env.set_parallelism(workers)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), folder).build()
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "keys", Types.STRING())
    kind = Types.TUPLE([Types.STRING(), Types.LONG()])
    counted = stream.key_by(lambda key: key, Types.STRING()).process(Count(), kind)
    return StreamTableEnvironment.create(env).from_data_stream(counted)


def by_sql(folder: str, workers: int) -> Table:
    table = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in {**SQL, "parallelism.default": str(workers)}.items():
        table.get_config().set(name, value)
    table.execute_sql(
        "CREATE TABLE words (word STRING) WITH "
        f"('connector' = 'filesystem', 'path' = 'file://{folder}', 'format' = 'raw')"
    )
    return table.sql_query("SELECT word, COUNT(*) FROM words GROUP BY word")


def main() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        asked = json.loads(line)
        plan = by_sql if asked["form"] == "sql" else by_function
        began = time.perf_counter()
        found = plan(asked["folder"], asked["workers"]).to_pandas()
        seconds = time.perf_counter() - began
        counts = zip(*(found.iloc[:, n].tolist() for n in (0, 1)), strict=True)
        digest = sha256(json.dumps(sorted(counts)).encode()).hexdigest()
        sys.stdout.write(json.dumps({"seconds": seconds, "digest": digest}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
