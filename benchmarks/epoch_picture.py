"""What one small epoch is made of: ``python -m benchmarks.epoch_picture --rows 10000 --side epoch``.

It counts, so that a busy machine changes little: CPU of the driver's Python, of the JVM, of the Python
processes below it and of each server; processes; Spark's jobs; the driver's calls into the JVM; and
every statement that PostgreSQL gets in one epoch, by session, in order. Sides run in one session. With
``--profile`` also the driver's Python by function (cProfile, whose own cost is in the times).
"""

from __future__ import annotations

import cProfile
import pstats
import re
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any
from unittest import mock

import psutil
import typer
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from rich.console import Console

import abs_spark
from abs_services.native.kafka import NativeKafka
from abs_services.native.lifecycle import NativeService
from abs_services.native.postgres import NativePostgres
from abs_spark.foreach.guarded import BatchFunction
from benchmarks import peers
from benchmarks.kafka_jobs import fresh_topic
from benchmarks.rows import SPARK_SCHEMA, write_epochs
from benchmarks.s3_folder import fresh_folder, s3_server
from benchmarks.session import spark_session
from benchmarks.small_epochs import KAFKA, MERGE, S3, THREE, Places, take_rows
from benchmarks.target import SETTINGS, Target, fresh_target

FILES, UNCOUNTED = 2, 15
"""Files of an epoch; epochs before the counted ones, in which the JVM compiles."""
LOGGED: Mapping[str, str] = {"log_statement": "all", "log_line_prefix": "%m [%p] %a "}
_ENTRY = re.compile(r"^(?=\d{4}-\d\d-\d\d \d\d:)", re.MULTILINE)
_STATEMENT = re.compile(
    r"\S+ (\S+) \S+ \[(\d+)\] (.*?) ?LOG:  (?:statement|execute [^:]*): (.*)", re.DOTALL
)
DRIVER, JVM, PYTHON = "driver's Python", "JVM", "Python below the JVM"
SEVERAL = (MERGE, KAFKA, S3, THREE)
"""Sides of ``small_epochs``; with these a broker and an S3 server are started, too."""

Attach = Callable[[DataStreamWriter, str], DataStreamWriter]
console = Console(width=200, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Picture:
    """Of a side: CPU milliseconds of an epoch by group, and what was counted in an epoch."""

    cpu_ms: Mapping[str, float]
    processes: int
    jobs: float
    calls: Mapping[str, float]
    p50_ms: float


def sides(target: Target) -> dict[str, Attach]:
    """Every side by name."""

    def epoch(protocol: str) -> Attach:
        def attach(writer: DataStreamWriter, checkpoint: str) -> DataStreamWriter:
            sink = abs_spark.sink("abs-postgres", {**target.options, "protocol": protocol})
            job = f"bench-{secrets.token_hex(4)}"
            return writer.foreachBatch(
                abs_spark.epoch(sink, job=job, checkpointLocation=checkpoint)
            )

        return attach

    return {
        "noop": lambda writer, _: writer.format("noop"),
        "empty": lambda writer, _: writer.foreachBatch(take_rows),
        "epoch": epoch("2pc"),
        "epoch-wal": epoch("wal"),
        "format": lambda writer, _: peers.ours(target.options, "2pc")(writer),
        "format-wal": lambda writer, _: peers.ours(target.options, "wal")(writer),
        "jdbc": lambda writer, _: peers.jdbc(target.jdbc, rewrite=True)(writer),
    }


def sides_of(places: Places) -> dict[str, Attach]:
    """Sides that need more than PostgreSQL."""

    def attached(name: str) -> Attach:
        sinks = places.sides()[name]
        assert sinks is not None
        return lambda writer, checkpoint: writer.foreachBatch(sinks(checkpoint))

    return {name: attached(name) for name in SEVERAL}


def picture(
    spark: SparkSession, attach: Attach, folder: Path, servers: Mapping[str, int]
) -> Picture:
    """Run a side's job, and count over its last epochs; ``servers``: processes by name."""
    calls: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir=folder.parent) as checkpoint, _counting(calls):
        frames = spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", FILES)
        writer = attach(frames.parquet(str(folder)).writeStream, checkpoint)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        while query.isActive and _last(query) < UNCOUNTED - 1:
            time.sleep(0.05)
        first = _last(query) + 1
        before, _ = _cpu(servers)
        calls.clear()
        query.awaitTermination()
        after, processes = _cpu(servers)
    progress = [p for p in query.recentProgress if p["numInputRows"]]
    number = progress[-1]["batchId"] + 1 - first
    jobs = len(spark.sparkContext.statusTracker().getJobIdsForGroup(str(query.runId)))
    return Picture(
        {name: (after[name] - before[name]) / number * 1e3 for name in after},
        processes,
        jobs / len(progress),
        {name: round(n / number, 1) for name, n in calls.items() if n >= number * 0.5},
        median(p["durationMs"]["triggerExecution"] for p in progress[-number:]),
    )


def _last(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


@contextmanager
def _counting(calls: Counter[str]) -> Iterator[None]:
    """Count the calls of this process into the JVM, by the method's name."""
    from py4j.clientserver import ClientServerConnection
    from py4j.java_gateway import GatewayConnection

    def counted(send: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(self: Any, command: str) -> Any:
            parts = command.split("\n")
            what = {"c": parts[2:3], "r": ["reflection"], "f": ["field"], "m": ["memory"]}
            if parts[0] != "m":  # the collector's: an object is not needed any more
                calls[" ".join(what.get(parts[0], parts[:2]))] += 1
            return send(self, command)

        return wrapped

    with ExitStack() as stack:
        for kind in (GatewayConnection, ClientServerConnection):
            patched = mock.patch.object(kind, "send_command", counted(kind.send_command))
            stack.enter_context(patched)
        yield


def _cpu(servers: Mapping[str, int]) -> tuple[dict[str, float], int]:
    """CPU seconds by group, and how many Python processes are below the JVM."""
    seconds = dict.fromkeys((DRIVER, JVM, PYTHON, *servers), 0.0)
    pythons = 0
    own = psutil.Process()
    group_of = {own: DRIVER}
    for name, pid in servers.items():
        first = psutil.Process(pid)
        group_of |= dict.fromkeys([first, *first.children(recursive=True)], name)
    for process in {own, *own.children(recursive=True), *group_of}:
        try:
            times, name = process.cpu_times(), process.name()
        except psutil.NoSuchProcess:
            continue
        group = group_of.get(process, JVM if name == "java" else PYTHON)
        pythons += group == PYTHON
        waited = times.children_user + times.children_system if group in servers else 0.0
        seconds[group] += times.user + times.system + waited
    return seconds, pythons


@contextmanager
def _profiled(on: bool) -> Iterator[None]:
    """Print where the driver's Python was in the function that Spark calls."""
    profile = cProfile.Profile()
    call = BatchFunction.__call__

    def profiled(self: BatchFunction, *given: Any) -> None:
        profile.runcall(call, self, *given)

    if not on:
        yield
        return
    with mock.patch.object(BatchFunction, "__call__", profiled):
        yield
    if profile.getstats():  # other sides do not call it
        pstats.Stats(profile).sort_stats("cumulative").print_stats(70)


def statements(log: str) -> list[tuple[str, str, str, str]]:
    """The server's statements in order: time, process, session's name, text."""
    found = (_STATEMENT.fullmatch(entry.strip()) for entry in _ENTRY.split(log))
    return [(m[1], m[2], m[3], " ".join(m[4].split())) for m in found if m]


def main(
    side: Annotated[list[str] | None, typer.Option(help="repeat it for several")] = None,
    rows: Annotated[int, typer.Option(help="rows of an epoch")] = 10_000,
    epochs: Annotated[int, typer.Option(help="epochs that are counted")] = 30,
    listed: Annotated[
        int, typer.Option(help="so many statements are listed: the first ones, and the last ones")
    ] = 0,
    profile: Annotated[bool, typer.Option(help="the driver's Python, by function")] = False,
) -> None:
    """Print the picture of an epoch of each side."""
    chosen = side or ["noop", "empty", "epoch", "format", "jdbc"]
    settings = {**SETTINGS, **(LOGGED if listed else {})}
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="abs-bench-"))
        server = stack.enter_context(NativePostgres(settings=settings))
        target = stack.enter_context(fresh_target(server))
        made, servers = sides(target), {"PostgreSQL": target.pid or 0}
        if not {*chosen}.isdisjoint(SEVERAL):
            kafka, s3 = stack.enter_context(NativeKafka()), stack.enter_context(s3_server())
            topic = stack.enter_context(fresh_topic(kafka.bootstrap))
            folder_of_s3 = stack.enter_context(fresh_folder(s3))
            made |= sides_of(Places(target, kafka, topic, folder_of_s3))
            assert isinstance(s3, NativeService)
            servers |= {"broker": kafka.pid or 0, "S3": s3.pid or 0}
        spark = stack.enter_context(spark_session(Path(scratch)))
        abs_spark.register(spark)
        folder = Path(scratch) / "input"
        write_epochs(folder, rows=rows, files=FILES, epochs=UNCOUNTED + epochs, distinct=True)
        for name in chosen:
            target.reset()
            start = len(server.said())
            with _profiled(profile):
                seen = picture(spark, made[name], folder, servers)
            console.print(f"[bold]{name}[/bold], {rows:,} rows an epoch; p50 {seen.p50_ms:.0f} ms")
            total = sum(seen.cpu_ms.values())
            shares = ", ".join(f"{who} {ms:.0f}" for who, ms in seen.cpu_ms.items())
            console.print(f"  CPU {total:.0f} ms: {shares}; {seen.processes} Python processes")
            calls = sum(seen.calls.values())
            console.print(f"  {seen.jobs:.1f} jobs, {calls:.0f} calls into the JVM: {seen.calls}")
            if listed:
                found = statements(server.said()[start:])
                for entry in [*found[:listed], *found[listed:][-listed:]]:
                    console.print("  " + " | ".join(entry)[:190], highlight=False, markup=False)


if __name__ == "__main__":
    typer.run(main)
