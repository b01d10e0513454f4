"""The harness of ``testing`` for ``wal`` and ``idempotent``: it looks into log, ledger and winners.

check_sink(partial(open_log, "127.0.0.1:9092", Variant("wal")))
check_sink(partial(open_attempts, "127.0.0.1:9092"))
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pyarrow as pa
from kafka import TopicPartition
from kafka.consumer.fetcher import ConsumerRecord

from abs_clients.kafka.attempts import HEADER, Winners, side_topic
from abs_clients.kafka.topics import topic_facts
from abs_core.model import HandleName
from abs_core.wal import FolderSegments
from abs_sinks.kafka.columnar.choice import AUTO, LIBRDKAFKA
from abs_sinks.kafka.ledger import handles_in_ledger
from abs_sinks.kafka.register.store import KafkaRegister
from tests.kit.kafka import PARTITIONS, TopicHarness, Variant, delete_topics, open_topic
from tests.kit.kafka_reading import READ_SECONDS, all_records


def outlived(proofs: Iterable[HandleName]) -> list[HandleName]:
    """What a ledger should have forgotten: all but one handle of a register's last epoch."""
    of_registers: dict[str, list[HandleName]] = {}
    for handle in sorted(proofs, key=lambda each: (each.generation, each.epoch)):
        of_registers.setdefault(handle.register, []).append(handle)
    return [handle for handles in of_registers.values() for handle in handles[:-1]]


class RegisterHarness(TopicHarness):
    """A topic and a register's topic of their own."""

    def __init__(
        self, bootstrap: str, variant: Variant, more: Mapping[str, str] | None = None
    ) -> None:
        named = {"registertopic": f"register-{secrets.token_hex(6)}"}
        super().__init__(bootstrap, variant, {**named, **(more or {})})

    def close(self) -> None:
        super().close()
        names = [self.options.registertopic, side_topic(self.topic)]
        made = topic_facts(self.options.kafka, names, again=True)
        delete_topics(self.options.kafka, list(made))

    def offsets_used(self) -> int:
        """How many offsets records, aborted records and markers have taken, over all partitions."""
        places = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        self._await_markers()
        ends: dict[TopicPartition, int] = self._reader().end_offsets(
            places, timeout_ms=READ_SECONDS * 1000
        )
        return sum(ends.values())


class LogHarness(RegisterHarness):
    """The same, with a write-ahead log of its own.

    Args:
        folder: the log.
    """

    def __init__(
        self,
        bootstrap: str,
        variant: Variant,
        folder: Path,
        more: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(bootstrap, variant, {"wal": folder.as_uri(), **(more or {})})
        self.folder = folder

    def leftovers(self, job: str) -> Sequence[str]:
        ledger = KafkaRegister(self.options).load_text(f"{job}+wal")
        proofs = set() if ledger is None else handles_in_ledger(job, ledger.text)
        return [
            *(f"segment {entry.handle}" for entry in FolderSegments(self.folder).list(job)),
            *(f"{handle} in the ledger" for handle in outlived(proofs)),
            *super().leftovers(job),
        ]


class AttemptHarness(RegisterHarness):
    """A topic that is read by the winners of its side topic."""

    def topics(self) -> tuple[str, ...]:
        # A decision is a transaction of the side topic: without its markers no reader sees the winners.
        return self.topic, side_topic(self.topic)

    def records(self) -> list[tuple[bytes | None, bytes | None]]:
        return [(record.key, record.value) for record in self.winning(self.topic)]

    def winning(self, topic: str) -> list[ConsumerRecord]:
        """What a reader that follows ``abs_clients.kafka.attempts`` sees, partition by partition."""
        self._await_markers()
        side = side_topic(topic)
        there = side in topic_facts(self.options.kafka, [side], again=True)
        values = [r.value for r in self._records(side, 1)] if there else []
        winners = Winners(there=there).read(values)
        found: list[ConsumerRecord] = []
        for number in range(PARTITIONS):
            records = [r for r in self._records(topic, PARTITIONS) if r.partition == number]
            filtered = winners.filter(
                pa.array([dict(r.headers).get(HEADER) for r in records], pa.binary())
            )
            keep = filtered.keep.to_pylist()
            found += [r for r, kept in zip(records[: filtered.stop], keep, strict=False) if kept]
        return found

    def _records(self, topic: str, partitions: int) -> list[ConsumerRecord]:
        """All committed records, in the order of each partition."""
        return all_records(self._reader(), topic, partitions)


@contextmanager
def open_log(bootstrap: str, variant: Variant) -> Iterator[LogHarness]:
    """A harness for ``protocol=wal`` on a new, empty topic.

    Args:
        bootstrap: host:port of a broker where topics may be made.
    """
    with tempfile.TemporaryDirectory(prefix="abs-wal-") as folder:
        harness = LogHarness(bootstrap, variant, Path(folder))
        try:
            yield harness
        finally:
            harness.close()


def open_attempts(bootstrap: str, producer: str = AUTO) -> closing[AttemptHarness]:
    """A harness for ``protocol=idempotent`` on a new, empty topic."""
    return closing(AttemptHarness(bootstrap, Variant("idempotent", producer=producer)))


def open_variant(bootstrap: str, name: str) -> AbstractContextManager[TopicHarness]:
    """A harness by a variant's name, such as ``wal-foreign-register`` or ``2pc-librdkafka``."""
    protocol = name.split("-")[0]
    producer = LIBRDKAFKA if name.endswith(LIBRDKAFKA) else AUTO
    if protocol == "idempotent":
        return open_attempts(bootstrap, producer)
    variant = Variant(protocol, "foreign-register" not in name, producer)
    return open_log(bootstrap, variant) if protocol == "wal" else open_topic(bootstrap, variant)
