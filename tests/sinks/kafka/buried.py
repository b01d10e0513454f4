"""A topic beside that of its dead letters, ``<topic>-dead``."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
from kafka import TopicPartition

from abs_clients.kafka.attempts import side_topic
from abs_clients.kafka.topics import topic_facts
from abs_core.contracts import Sink, Task, Writer
from abs_sinks.deadletters.letter import schema_of
from abs_sinks.deadletters.row import rows_of
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.sink import KafkaSink
from abs_testing import Row
from tests.kit.kafka import PARTITIONS, TopicHarness, Variant, delete_topics, make_topic
from tests.kit.kafka_log import committed
from tests.kit.kafka_modes import AttemptHarness, LogHarness
from tests.kit.kafka_reading import all_records
from tests.kit.reshaping import ReshapingWriter
from tests.sinks.dead_letters import is_poison

PLACED = pa.schema([("key", pa.string()), ("value", pa.string()), ("partition", pa.int32())])
NOWHERE = 99
"""A partition that the topic does not have."""


class PlacedSink(KafkaSink):
    """Takes the checks' batches: ``id`` becomes the key; poison is for a partition that is missing."""

    def writer(self, task: Task) -> Writer:
        return ReshapingWriter(super().writer(task), _placed)


def _placed(batch: pa.RecordBatch) -> pa.RecordBatch:
    ids, values = batch.columns
    places = [NOWHERE if is_poison(id_) else None for id_ in ids.to_pylist()]
    return pa.record_batch(
        [ids.cast(pa.string()), values, pa.array(places, pa.int32())], schema=PLACED
    )


class Buried(TopicHarness):
    """Rows that ``is_poison`` tells are dead letters."""

    code = "partition"

    def bury(self, **more: object) -> None:
        """To be called once, before the first sink is made."""
        self.dead = f"{self.topic}-dead"
        given = {"deadletter": self.dead, "deadlettermax": 1.0, **more}
        make_topic(self.options.kafka, self.dead)
        self.options = replace(self.options, **given)  # type: ignore[arg-type]
        self.new_sink = self.sink_for(self.options)
        self._through = self.options

    def sink_for(self, options: KafkaOptions) -> Callable[[], Sink]:
        if options.deadletter is None:
            return super().sink_for(options)
        return partial(PlacedSink, options, PLACED, co_commit=self.variant.own_register)

    def letters(self) -> list[tuple[str, Row]]:
        """Code and row of each dead letter that is committed, also behind an open transaction."""
        found = [json.loads(value or b"") for value in self.dead_records()]
        read = [(each["code"], rows_of([each["row"]], schema_of(each["schema"]))) for each in found]
        return [(code, (int(b["key"][0].as_py()), b["value"][0].as_py())) for code, b in read]

    def dead_records(self) -> list[bytes | None]:
        self._await_markers()
        places = [TopicPartition(self.dead, number) for number in range(PARTITIONS)]
        ends = self._ends(places)[1]
        return [
            record.value
            for place in places
            for record in committed(self.options.kafka, self.dead, place.partition, ends[place])
        ]

    def headers(self) -> list[dict[str, str]]:
        """The headers of each dead letter, as kafka-python reads them."""
        found = all_records(self._reader(), self.dead, PARTITIONS)
        return [{k: v.decode() for k, v in record.headers} for record in found]

    def written_to(self, partition: int) -> list[bytes | None]:
        """The values in one partition."""
        place = TopicPartition(self.topic, partition)
        self._await_markers()
        return [value for _, value in self._read_committed([place], self._ends([place])[0])]

    def close(self) -> None:
        super().close()
        delete_topics(self.options.kafka, [self.dead])


class BuriedLog(Buried, LogHarness):
    """The same with a write-ahead log."""


class BuriedAttempts(Buried, AttemptHarness):
    """The same, where both topics are read by their winners."""

    def dead_records(self) -> list[bytes | None]:
        return [record.value for record in self.winning(self.dead)]

    def close(self) -> None:
        super().close()
        side = side_topic(self.dead)
        delete_topics(self.options.kafka, list(topic_facts(self.options.kafka, [side], again=True)))


_KINDS = {"2pc": Buried, "idempotent": BuriedAttempts}


def poisoned(harness: Buried) -> None:
    """Let a reader see the topic and its dead letters together: each check is one of the equation."""
    rows = harness.read
    harness.read = lambda: [*rows(), *(row for _, row in harness.letters())]  # type: ignore[method-assign]


@contextmanager
def buried(
    bootstrap: str, variant: Variant, *, together: bool = False, **more: object
) -> Iterator[Buried]:
    """Args:
    together: see ``poisoned``.
    more: options besides.
    """
    with tempfile.TemporaryDirectory(prefix="abs-buried-") as folder:
        wal = variant.protocol == "wal"
        kind = Buried if wal else _KINDS[variant.protocol]
        harness = BuriedLog(bootstrap, variant, Path(folder)) if wal else kind(bootstrap, variant)
        harness.bury(**more)
        if together:
            poisoned(harness)
        try:
            yield harness
        finally:
            harness.close()
