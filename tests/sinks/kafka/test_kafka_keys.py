"""A key's bytes are its identity: no start of a job writes a key in another way than its first one."""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from abs_clients.avro.schema import fingerprint, parsed
from abs_clients.kafka.cluster import close_clusters
from abs_clients.kafka.topics import topic_facts
from abs_core.errors import AbsError, SchemaError, TargetWentBackError
from abs_services import KafkaService
from abs_services.registry import StandIn
from abs_sinks.kafka import formats
from abs_sinks.kafka.avro import columns, pins
from abs_sinks.kafka.avro.encode import encode
from abs_sinks.kafka.keys import KeyNote
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.sink import KafkaSink
from abs_testing.case import Case, within
from abs_testing.engine import RunSettings
from tests.kit.kafka import PARTITIONS, Variant, delete_topics, make_topic
from tests.kit.kafka_modes import LogHarness
from tests.kit.kafka_reading import READ_SECONDS, all_records
from tests.planted import planted
from tests.sample import seed

pytestmark = pytest.mark.services

K = {"type": "record", "name": "K", "fields": [{"name": "id", "type": "int"}]}
V = {"type": "record", "name": "V", "fields": [{"name": "w", "type": "string"}]}
TYPES = {
    "key": pa.struct([("id", pa.int32())]),
    "value": pa.struct([("w", pa.string())]),
}
"""Of the columns in Avro; others are strings."""


class Job:
    """A job that writes changes to a topic of its own; each epoch is a run of its own."""

    def __init__(self, harness: LogHarness, registry: StandIn) -> None:
        self.harness = harness
        self.registry = registry
        self.given = {**harness.given, "write": "changes", "sequenceby": "lsn"}
        self.given |= {"registry.url": registry.url, "key.format": "avro", "value.format": "bytes"}
        self.key_type = TYPES["key"]
        self.case = Case(harness)
        self._epoch = 0
        self.add_key(K)

    def add_key(self, schema: Any) -> int:
        return self.registry.add(f"{self.harness.topic}-key", schema)

    def start(
        self, keys: list[Any], *, delete: bool = False, **settings: Unpack[RunSettings]
    ) -> None:
        """One epoch of a new run, by a process that has asked neither broker nor registry so far."""
        options = KafkaOptions.parse(
            {
                name: value
                for name, value in self.given.items()
                if "avro" in (self.given["key.format"], self.given["value.format"])
                or not name.startswith("registry.")
            }
        )
        avro = options.formats.columns
        kinds = {"key": self.key_type, "value": TYPES["value"]}
        kinds = {name: kind if name in avro else pa.string() for name, kind in kinds.items()}
        schema = pa.schema([*kinds.items(), ("op", pa.string()), ("lsn", pa.int64())])
        names = list(self.key_type.names)
        rows = [
            {
                "key": dict.fromkeys(names, key) if "key" in avro else str(key),
                "value": {"w": "x"} if "value" in avro else "x",
                "op": "d" if delete else "c",
                "lsn": self._epoch * 100 + n,
            }
            for n, key in enumerate(keys)
        ]
        self.harness.new_sink = partial(KafkaSink, options, schema, co_commit=True)
        close_clusters(options.kafka)
        run = self.case.run(**settings)
        attempt = run.attempt(self._epoch)
        try:
            attempt.writer.write(pa.RecordBatch.from_pylist(rows, schema))
        except AbsError:
            attempt.writer.abort()
            raise
        attempt._rows = len(rows)
        run.commit(self._epoch, [attempt.pre_commit()])
        self._epoch += 1

    def left(self) -> set[bytes]:
        """The keys of the rows that a compacted topic keeps."""
        partitions = topic_facts(self.harness.options.kafka, [self.harness.topic], again=True)
        count = partitions[self.harness.topic].partitions
        newest: dict[tuple[int, bytes], bool] = {}
        self.harness.look_anew()
        for record in all_records(self.harness._reader(), self.harness.topic, count):
            newest[record.partition, record.key] = record.value is not None
        return {key for (_, key), there in newest.items() if there}


@contextmanager
def job_on(kafka: KafkaService) -> Iterator[Job]:
    kafka.start()
    with StandIn() as registry, tempfile.TemporaryDirectory(prefix="abs-wal-") as folder:
        harness = LogHarness(kafka.bootstrap, Variant("wal"), Path(folder))
        try:
            yield Job(harness, registry)
        finally:
            harness.close()


def _newer_version(job: Job) -> None:
    field = {"name": "shop", "type": "string", "default": "x"}
    job.add_key({**K, "fields": [*K["fields"], field]})


def _other_doc(job: Job) -> None:
    job.add_key({**K, "doc": "what a customer is"})


def _other_schema_given(job: Job) -> None:
    job.given["key.schema"] = json.dumps({**K, "name": "Other"})
    job.add_key({**K, "name": "Other"})


def _another_field(job: Job) -> None:
    job.key_type = pa.struct([("id", pa.int32()), ("shop", pa.int32())])
    job.add_key({**K, "fields": [*K["fields"], {"name": "shop", "type": ["null", "int"]}]})


def _wider(job: Job) -> None:
    job.key_type = pa.struct([("id", pa.int64())])
    job.add_key({**K, "fields": [{"name": "id", "type": "long"}]})


def _deleted(job: Job) -> None:
    job.registry.delete(f"{job.harness.topic}-key")
    job.add_key({**K, "doc": "made again"})


def _built_again(job: Job) -> None:
    """The registry is lost and filled again: an id is another schema's."""
    job.registry.delete(f"{job.harness.topic}-key")
    field = {"name": "at", "type": "long", "default": 0}
    job.registry._texts[0] = {"schema": json.dumps({**K, "fields": [*K["fields"], field]})}
    job.registry._subjects[f"{job.harness.topic}-key"] = [1]


def _other_format(job: Job) -> None:
    job.given["key.format"] = "bytes" if job.given["key.format"] == "avro" else "avro"


def _values_in_avro(job: Job) -> None:
    job.registry.add(f"{job.harness.topic}-value", V)
    job.given["value.format"] = "avro" if job.given["value.format"] == "bytes" else "bytes"


def _other_producer(job: Job) -> None:
    job.given["producer"] = "librdkafka"


def _other_partitioner(job: Job) -> None:
    job.given["producer"], job.given["kafka.partitioner"] = "librdkafka", "fnv1a"


def _same_partitioner(job: Job) -> None:
    job.given["kafka.partitioner"] = "murmur2"


def _more_partitions(job: Job) -> None:
    client = AdminClient({"bootstrap.servers": job.harness.bootstrap})
    topic = job.harness.topic
    client.create_partitions([NewPartitions(topic, PARTITIONS + 2)])[topic].result(READ_SECONDS)
    settings = job.harness.options.kafka
    look = partial(topic_facts, settings, [topic], again=True)
    assert within(READ_SECONDS, lambda: look()[topic].partitions == PARTITIONS + 2)


REFUSED = (
    *(_other_schema_given, _another_field, _wider, _deleted, _built_again, _other_format),
    *(_other_partitioner, _more_partitions),
)
TAKEN = (_newer_version, _other_doc, _values_in_avro, _other_producer, _same_partitioner)


def check(kafka: KafkaService, *changes: Callable[[Job], None]) -> list[str]:
    """Rows are inserted, something changes, they are deleted; again. The refusals."""
    refused = []
    with job_on(kafka) as job:
        job.start(list(range(8)))
        for change in changes:
            before, kind = dict(job.given), job.key_type
            change(job)
            try:
                job.start([100])  # the first epoch of a run may be a replay, and keeps the old ids
                job.start([*range(8), 100], delete=True)
            except SchemaError as error:
                refused.append(str(error))
                job.given, job.key_type = before, kind  # what the remedy says
                with suppress(SchemaError):
                    job.start([*range(8), 100], delete=True)
                    assert job.left() == set()
                continue
            assert job.left() == set(), change.__name__
            job.start(list(range(8)))
    return refused


@pytest.mark.parametrize("change", TAKEN)
def test_a_deleted_key_goes_whatever_changed_between_two_starts(
    kafka: KafkaService, change: Callable[[Job], None]
) -> None:
    assert check(kafka, change) == []


@pytest.mark.parametrize("change", REFUSED)
def test_a_start_that_would_write_other_keys_is_refused(
    kafka: KafkaService, change: Callable[[Job], None]
) -> None:
    (told,) = check(kafka, change)
    assert "is another key" in told
    assert "write to another topic" in told


@pytest.mark.campaign
@pytest.mark.parametrize("number", range(20))
def test_any_order_of_such_changes_leaves_no_deleted_key(kafka: KafkaService, number: int) -> None:
    chosen = random.Random(seed() + number)
    check(kafka, *chosen.choices((*TAKEN, *REFUSED[:-1]), k=4))


def test_a_newer_schema_for_keys_is_found(kafka: KafkaService) -> None:
    """A planted bug: the registry's newest version is taken for keys, too."""
    plain = pins.pinned
    with planted((columns, "pinned", lambda o, t, c, keys=None: plain(o, t, c))):
        check(kafka, _newer_version)


def test_a_topic_with_more_partitions_is_found(kafka: KafkaService) -> None:
    """A planted bug: nobody keeps how keys are placed."""
    with planted((formats, "are_noted", lambda options: False)), job_on(kafka) as job:
        job.given["key.format"] = "bytes"
        job.start(list(range(8)))
        _more_partitions(job)
        job.start(list(range(8)), delete=True)
        assert job.left() == set()


def test_another_job_on_another_topic_takes_another_schema(kafka: KafkaService) -> None:
    with job_on(kafka) as job, job_on(kafka) as other:
        job.start([1])
        _wider(job)
        with pytest.raises(SchemaError, match="under another job name"):
            job.start([1])
        _wider(other)
        other.start([1])
        assert len(other.left()) == 1


def test_a_topic_that_was_made_again_has_no_keys_to_keep(kafka: KafkaService) -> None:
    with job_on(kafka) as job:
        job.start([1])
        _wider(job)
        settings, topic = job.harness.options.kafka, job.harness.topic
        delete_topics(settings, [topic])
        assert within(READ_SECONDS, lambda: not topic_facts(settings, [topic], again=True))
        make_topic(settings, topic, 1)
        with pytest.raises(TargetWentBackError) as told:
            job.start([1])
        found = re.search(r"adopt=(\w+)", told.value.remedy)
        assert found is not None
        job.start([1], adopt=found[1])
        assert len(job.left()) == 1


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.int32())),
        (["int", "long"], pa.int64()),
    ],
)
def test_a_key_of_changes_has_one_form(kafka: KafkaService, schema: Any, kind: pa.DataType) -> None:
    with job_on(kafka) as job:
        job.add_key({**K, "fields": [{"name": "id", "type": schema}]})
        job.key_type = pa.struct([("id", kind)])
        with pytest.raises(SchemaError, match="is part of the bytes"):
            job.start([1] if pa.types.is_integer(kind) else [{"a": 1}])


def test_the_bytes_of_keys_and_their_note_are_those_of_the_first_release() -> None:
    folder = Path(__file__).parents[2] / "golden" / "formats"
    fields: dict[str, tuple[Any, Any, Any]] = {
        "bool": (pa.bool_(), "boolean", True),
        "int": (pa.int32(), "int", -65),
        "long": (pa.int64(), "long", 1 << 40),
        "float": (pa.float32(), "float", 1.5),
        "double": (pa.float64(), "double", -0.1),
        "text": (pa.string(), "string", "ä"),
        "raw": (pa.binary(), "bytes", b"\0\xff"),
        "enum": (pa.string(), {"type": "enum", "name": "E", "symbols": ["a", "b"]}, "b"),
        "fixed": (pa.binary(), {"type": "fixed", "name": "F", "size": 2}, b"ab"),
        "day": (pa.date32(), {"type": "int", "logicalType": "date"}, 20_000),
        "at": (
            pa.timestamp("us", "UTC"),
            {"type": "long", "logicalType": "timestamp-millis"},
            1_700_000_000_123_000,
        ),
        "money": (
            pa.decimal128(9, 2),
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            Decimal("-1.28"),
        ),
        "items": (pa.list_(pa.int32()), {"type": "array", "items": "int"}, [1, 2, 3]),
        "none": (pa.int32(), ["null", "int"], None),
    }
    text = json.dumps(
        {
            "type": "record",
            "name": "K",
            "fields": [{"name": name, "type": each[1]} for name, each in fields.items()],
        }
    )
    node = parsed(text)
    value = pa.array(
        [{name: each[2] for name, each in fields.items()}],
        pa.struct([(name, each[0]) for name, each in fields.items()]),
    )
    note = KeyNote("avro", 7, fingerprint(node), "murmur2", 3, "AAAA")
    made = f"{encode(node, value, b'', 'key')[0].as_py().hex()}\n{note.to_text()}\n"
    golden = folder / "kafka-keys.txt"
    assert made == golden.read_text()
    assert KeyNote.from_text("job", golden.read_text().splitlines()[1]) == note
