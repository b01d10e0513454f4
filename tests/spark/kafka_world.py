"""What the Spark tests write to Kafka, from Kafka, and how they look at what has become of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from abs_core.model import JobState
from abs_services import KafkaService
from abs_sinks.kafka.register.store import KafkaRegister
from tests.kit.kafka import TopicHarness
from tests.kit.kafka_cluster import NativeKafkaCluster
from tests.kit.kafka_modes import LogHarness
from tests.kit.kafka_source import KafkaSourceHarness
from tests.spark.drivers import copy_checkpoint
from tests.spark.jobs.stream_files import Job

JOB = "job"


@dataclass(frozen=True)
class KafkaWorld:
    """Two topics, and a folder with a checkpoint.

    Args:
        folder: of this test.
        source: what is read; half of its offsets hold no row, so that some epochs are empty.
        target: what is written.
    """

    folder: Path
    kafka: KafkaService | NativeKafkaCluster
    source: KafkaSourceHarness
    target: TopicHarness

    def job(self, **more: object) -> Job:
        """The job on this world's checkpoint; ``more`` are fields of ``Job``."""
        target = self.target
        options = {
            "kafka.bootstrap.servers": self.kafka.bootstrap,
            "topic": target.topic,
            "registertopic": target.options.registertopic,
            "protocol": target.variant.protocol,
            "producer": target.variant.producer,
            "job": JOB,
        }
        if isinstance(target, LogHarness):
            options["wal"] = target.folder.as_uri()
        given: dict[str, object] = {
            "input": "",
            "checkpoint": str(self.checkpoint),
            "scratch": str(self.folder / "scratch"),
            "format": "abs-kafka",
            "options": options,
            "source": "abs-kafka",
            "source_options": {
                "kafka.bootstrap.servers": self.kafka.bootstrap,
                "subscribe": self.source.topic,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": "40",
            },
        }
        return Job(**{**given, **more})  # type: ignore[arg-type]

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def checkpoint_copy(self, name: str) -> Path:
        """The checkpoint as it is now, at another place."""
        return copy_checkpoint(self.checkpoint, self.folder / name)

    def epochs_done(self, checkpoint: Path | None = None) -> list[int]:
        """What Spark has noted as done, in order."""
        commits = ((checkpoint or self.checkpoint) / "commits").glob("[0-9]*")
        return sorted(int(path.name) for path in commits)

    def forget_commits(self, newest: int, checkpoint: Path | None = None) -> None:
        """Delete the newest files under the checkpoint's ``commits/``."""
        commits = (checkpoint or self.checkpoint) / "commits"
        for number in self.epochs_done(checkpoint)[-newest:]:
            (commits / str(number)).unlink()
            (commits / f".{number}.crc").unlink(missing_ok=True)

    def state(self) -> JobState | None:
        """The job's register."""
        stored = KafkaRegister(self.target.options).load(JOB)
        return None if stored is None else stored.state

    def holds(self, added: Sequence[object], when: str) -> None:
        """Assert that each of these is there once, nothing else is, and nothing is left open."""
        found: Counter[object] = Counter(value for _, value in self.target.records())
        expected = Counter(added)
        missing, extra = expected - found, found - expected
        assert not missing, f"{when}: {missing.total()} are missing: {list(missing)[:3]}"
        assert not extra, f"{when}: {extra.total()} are too many: {list(extra)[:3]}"
        left = self.target.leftovers(JOB)
        assert not left, f"{when}: left behind: {left}"
        hidden = self.target.hidden()
        assert hidden == 0, f"{when}: {hidden} offsets lie behind the last stable one"
