"""A job with sinks in PostgreSQL, Kafka and S3, and the commands on it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from abs_core import sinkmap
from abs_core.contracts import Task
from abs_core.model import Committable, JobState, Share, Wrote
from abs_core.protocol import Changed, decide
from abs_sinks.door import format_named
from abs_spark.foreach.run import EpochRun
from abs_spark.names import RunName
from abs_spark.open_sinks import OpenSinks
from abs_spark.sink_spec import SinkSpec
from tests.kit.command import abs_
from tests.kit.kafka import TopicHarness
from tests.spark.bucket import Bucket

JOB = "orders"
SCHEMA = pa.schema([("key", pa.string()), ("value", pa.string())])
NAMES = ("payments", "alerts", "items")


@dataclass
class Several:
    """A job of three sinks, and the file that tells commands of it."""

    url: str
    topic: TopicHarness
    bucket: Bucket
    folder: Path
    name: str = JOB
    table: str = "payments"
    register: str = "payments"
    adopt: str | None = None
    starts: int = 0
    audit: dict[str, tuple[str, str]] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    spark: Path | None = None
    """The query's checkpoint, for commands that read it."""
    alerts: dict[str, str] = field(default_factory=dict)
    """More options of the sink in Kafka."""
    payments: dict[str, str] = field(default_factory=dict)
    """More options of the sink in PostgreSQL."""
    patience: str | None = None
    """For how many seconds Kafka's calls are repeated; None: its default."""

    @property
    def options(self) -> dict[str, dict[str, str]]:
        kafka = {
            "kafka.bootstrap.servers": self.topic.bootstrap,
            "topic": self.topic.topic,
            "registertopic": self.topic.options.registertopic,
            **({} if self.patience is None else {"patience": self.patience}),
            **self.alerts,
        }
        return {
            "payments": {"url": self.url, "dbtable": self.table, **self.payments},
            "alerts": kafka,
            "items": self.bucket.options,
        }

    def file(self, *, names_the_job: bool = True, **changed: str) -> Path:
        """The TOML file; with other options of ``payments``."""
        lines = [f'job = "{self.name}"'] if names_the_job else []
        lines.append(f'register = "{self.register}"')
        if self.spark is not None:
            lines += [f'checkpointLocation = "{self.spark}"']
        for name, options in self.options.items():
            given = options | (changed if name == "payments" else {})
            kind = {"payments": "abs-postgres", "alerts": "abs-kafka", "items": "abs-s3"}[name]
            lines += [f"[sinks.{name}]", f'format = "{kind}"', f"[sinks.{name}.options]"]
            lines += [f"{key} = {json.dumps(text)}" for key, text in given.items()]
            if name in self.audit:
                expected, key = self.audit[name]
                lines += [f"[sinks.{name}.audit]", f'expected = "{expected}"', f'key = "{key}"']
                lines += [f'columns = "{self.columns[name]}"'] if name in self.columns else []
        path = self.folder / "job.toml"
        path.write_text("\n".join(lines))
        return path

    def run(self, register: str | None = None) -> EpochRun:
        """A new run of the job, as ``abs_spark.epoch`` makes one."""
        kinds = ("abs-postgres", "abs-kafka", "abs-s3")
        made = []
        for name, kind in zip(NAMES, kinds, strict=True):
            format_ = format_named(kind)
            made.append(SinkSpec(format_, format_.parse(self.options[name]), SCHEMA))
        self.starts += 1
        run = RunName(self.name, "lineage", f"run-{self.starts}")
        checkpoint = str(self.folder / "checkpoint")
        targets = OpenSinks(NAMES, made, register or self.register)
        return EpochRun(run, targets, checkpoint, self.adopt)

    def write(self, run: EpochRun, epoch: int, *values: str) -> list[Committable]:
        """What the tasks of an epoch do."""
        state, _ = run.begin(epoch)
        made = []
        for name, options in self.options.items():
            number = run.numbers[name]
            kind = format_named({0: "abs-postgres", 1: "abs-kafka", 2: "abs-s3"}[number])
            sink = SinkSpec(kind, kind.parse(options), SCHEMA).sink(alone=False)
            partition = number * sinkmap.STRIDE
            task = Task(state.register, self.name, state.generation, epoch, partition, "ab")
            writer = sink.writer(task)
            writer.write(pa.record_batch([list(values), list(values)], schema=SCHEMA))
            committable = writer.pre_commit()
            assert committable is not None
            made.append(committable)
            sink.close()
        return made

    def epoch(self, run: EpochRun, epoch: int, *values: str) -> None:
        made = self.write(run, epoch, *values)
        run.commit(epoch, [Wrote(each.rows, each) for each in made], f"input {epoch}")

    def decided(self, run: EpochRun, epoch: int, *values: str) -> None:
        """What a driver does that dies right after the decision."""
        made = self.write(run, epoch, *values)
        shares: list[Share] = [Wrote(each.rows, each) for each in made]
        store = run.targets.register()
        stored = store.load(self.name)
        assert stored is not None
        verdict = decide(
            stored.state,
            stored.state.generation,
            epoch,
            made,
            fingerprint=f"input {epoch}",
            rows=sum(share.rows for share in shares),
        )
        assert isinstance(verdict, Changed)
        store.compare_and_set(self.name, stored.version, verdict.state)

    def state(self, run: EpochRun) -> JobState:
        stored = run.targets.register().load(self.name)
        assert stored is not None
        return stored.state

    def values(self) -> dict[str, list[str]]:
        """What readers see, in each target."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            read = sql.SQL("select value from {}").format(sql.Identifier(self.table))
            rows = [row[0] for row in connection.execute(read)]
        frame = self.bucket.frame(self.bucket.names())
        found = {
            "payments": rows,
            "alerts": [(value or b"").decode() for _, value in self.topic.records()],
            "items": list(frame["value"]) if len(frame) else [],
        }
        return {name: sorted(values) for name, values in found.items()}


def parsed(*arguments: object) -> Any:
    result = abs_(*arguments, "--json")
    assert result.exit_code in (0, 1), (result.output, result.exception)
    return json.loads(result.stdout)


def everywhere(*values: str) -> dict[str, list[str]]:
    return {name: sorted(values) for name in NAMES}
