"""Records with a schema on a real broker: who reads them, and that a replay writes the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from abs_cli.moving import rename
from abs_core.contracts import Sink, Task, Writer
from abs_core.crash import CrashPoint
from abs_core.errors import FencedError, RowError, SchemaError, UnavailableError
from abs_core.model import Severity
from abs_core.sinkmap import STRIDE
from abs_services import KafkaService
from abs_services.registry import StandIn
from abs_sinks.kafka.avro import pins
from abs_sinks.kafka.avro.choose import Chooser
from abs_sinks.kafka.avro.pins import Pins, cell_of, pinned
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.sink import KafkaSink
from abs_testing import ForkServer, check_crashes
from abs_testing.case import JOB, Case, rows
from tests.kit.kafka import TopicHarness, Variant
from tests.kit.kafka_modes import LogHarness
from tests.kit.reshaping import ReshapingWriter
from tests.planted import planted

pytestmark = pytest.mark.services

ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"]}],
}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
NEWER = {**ORDER, "fields": [*ORDER["fields"], NOTE]}
KEY = {"type": "long"}
STRUCT = pa.struct([("id", pa.int64()), ("text", pa.string())])


class AvroSink(KafkaSink):
    """Takes the checks' batches: ``id`` is the key, and both columns are the value's fields."""

    def writer(self, task: Task) -> Writer:
        return ReshapingWriter(super().writer(task), self._in_structs)

    def _in_structs(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        value = pa.StructArray.from_arrays(batch.columns, fields=list(STRUCT))
        key = batch.column(0).cast(self._schema.field("key").type)
        return pa.record_batch([key, value], schema=self._schema)


class AvroHarness(TopicHarness):
    """A topic whose records confluent-kafka's own deserializer reads."""

    def sink_for(self, options: KafkaOptions) -> Callable[[], Sink]:
        key = pa.int64() if "key" in options.formats.columns else pa.string()
        schema = pa.schema([("key", key), ("value", STRUCT)])
        return partial(AvroSink, options, schema, co_commit=self.variant.own_register)

    def read(self) -> list[tuple[int, str]]:
        client = SchemaRegistryClient({"url": self.options.registry.url})
        decode = AvroDeserializer(client)
        at = SerializationContext(self.topic, MessageField.VALUE)
        found: list[Any] = [decode(value, at) for _, value in self.records()]
        return [(each["id"], each["text"]) for each in found]

    def ids(self) -> set[int]:
        """The schema ids of all values."""
        return {int.from_bytes((value or b"")[1:5], "big") for _, value in self.records()}


class AvroLog(LogHarness, AvroHarness):
    """The same with a write-ahead log."""


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with StandIn() as served:
        yield served


@contextmanager
def opened(
    kafka: KafkaService, registry: StandIn, more: Mapping[str, str] | None = None, **how: Any
) -> Iterator[AvroHarness]:
    kafka.start()
    given = {"value.format": "avro", "registry.url": registry.url, **(more or {})}
    harness = AvroHarness(kafka.bootstrap, Variant(how.pop("protocol", "2pc"), **how), given)
    with closing(harness):
        yield harness


KEYED = {"key.format": "avro"}


@pytest.mark.parametrize("producer", ["columnar", "librdkafka"])
def test_another_client_reads_keys_and_values(
    kafka: KafkaService, registry: StandIn, producer: str
) -> None:
    with opened(kafka, registry, KEYED, producer=producer) as harness:
        number = registry.add(f"{harness.topic}-value", ORDER)
        key = registry.add(f"{harness.topic}-key", KEY)
        with closing(Case(harness)) as case:
            case.run().epoch(0, rows(0, 300), rows(1000, 5))
            case.finished(rows(0, 300), rows(1000, 5), when="after the epoch")
        client = SchemaRegistryClient({"url": registry.url})
        decode = AvroDeserializer(client)
        at = SerializationContext(harness.topic, MessageField.KEY)
        assert harness.ids() == {number}
        assert {decode(k, at) for k, _ in harness.records()} == {*range(300), *range(1000, 1005)}
        assert all((k or b"")[:5] == b"\0" + key.to_bytes(4, "big") for k, _ in harness.records())


WAYS = [("2pc", True), ("2pc", False), ("idempotent", True)]


@pytest.mark.parametrize(("protocol", "own"), WAYS)
def test_a_replay_writes_the_bytes_of_its_first_attempt_although_the_registry_moved_on(
    kafka: KafkaService, registry: StandIn, protocol: str, own: bool
) -> None:
    with opened(kafka, registry, protocol=protocol, own_register=own) as harness:
        old = registry.add(f"{harness.topic}-value", ORDER)
        with closing(Case(harness)) as case:
            lost = case.run().attempt(0).write(*rows(0, 3)).pre_commit()  # never decided
            assert dict(lost.committable.extra)["schemas"] == f"value={old}"  # type: ignore[union-attr]
            new = registry.add(f"{harness.topic}-value", NEWER)

            again = case.run()
            share = again.task(0, 0, rows(0, 3))
            again.commit(0, [share])
            kept = {*harness.ids()}
            again.epoch(1, rows(10, 3))

            assert kept == {old}
            assert share.committable.digest == lost.committable.digest  # type: ignore[union-attr]
            assert harness.ids() == {old, new}, "from the next epoch on the newer schema holds"


def test_a_second_replay_after_a_further_version_has_the_ids_of_the_first_attempt(
    kafka: KafkaService, registry: StandIn
) -> None:
    with opened(kafka, registry) as harness, closing(Case(harness)) as case:
        old = registry.add(f"{harness.topic}-value", ORDER)
        case.run().attempt(0).write(*rows(0, 3)).pre_commit()
        for number in range(3):
            field = {"name": f"n{number}", "type": "int", "default": 0}
            registry.add(f"{harness.topic}-value", {**ORDER, "fields": [*ORDER["fields"], field]})
            case.run().attempt(0).write(*rows(0, 3)).pre_commit()
        case.run().epoch(0, rows(0, 3))
        assert harness.ids() == {old}


def test_the_check_of_the_replay_sees_ids_that_are_asked_for_anew(
    kafka: KafkaService, registry: StandIn
) -> None:
    """A planted defect: no task looks at what was noted."""
    with (
        opened(kafka, registry) as harness,
        closing(Case(harness)) as case,
        planted((Pins, "at", lambda self, epoch: self.ids)),
    ):
        old = registry.add(f"{harness.topic}-value", ORDER)
        case.run().attempt(0).write(*rows(0, 3)).pre_commit()
        registry.add(f"{harness.topic}-value", NEWER)
        case.run().epoch(0, rows(0, 3))
        assert harness.ids() == {old}


def test_a_run_keeps_its_ids_while_it_lasts(kafka: KafkaService, registry: StandIn) -> None:
    with opened(kafka, registry) as harness, closing(Case(harness)) as case:
        old = registry.add(f"{harness.topic}-value", ORDER)
        run = case.run()
        run.epoch(0, rows(0, 3))
        registry.add(f"{harness.topic}-value", NEWER)
        run.epoch(1, rows(10, 3))
        assert harness.ids() == {old}


def test_ids_that_do_not_fit_the_query_any_more_are_replaced_at_once(
    kafka: KafkaService, registry: StandIn
) -> None:
    with opened(kafka, registry) as harness, closing(Case(harness)) as case:
        fewer = {**ORDER, "fields": ORDER["fields"][:1]}
        run = case.run()
        run.begin(0)
        state = run.state()
        mine = replace(_task(), register=state.register)
        store, key = KafkaRegister(harness.options), cell_of(mine, harness.options)
        before = registry.add(f"{harness.topic}-value", fewer)
        note = Pins(state.generation, 0, {"value": before})
        store.swap_text(key, None, note.to_text())
        now = registry.add(f"{harness.topic}-value", ORDER)
        case.run().epoch(0, rows(0, 3))
        assert harness.ids() == {now}


def test_a_task_of_an_older_run_writes_no_note(kafka: KafkaService, registry: StandIn) -> None:
    with opened(kafka, registry) as harness, closing(Case(harness)) as case:
        registry.add(f"{harness.topic}-value", ORDER)
        late = case.run().attempt(0)
        case.run().attempt(0).write(*rows(0, 3)).pre_commit()
        with pytest.raises(FencedError):
            late.write(*rows(0, 3))


def test_another_job_of_that_name_does_not_take_the_old_ones_note(
    kafka: KafkaService, registry: StandIn
) -> None:
    with opened(kafka, registry) as harness, closing(Case(harness)) as case:
        old = registry.add(f"{harness.topic}-value", ORDER)
        case.run().attempt(0).write(*rows(0, 3)).pre_commit()
        harness.new_sink().register().retire(JOB)  # type: ignore[attr-defined]
        new = registry.add(f"{harness.topic}-value", NEWER)
        case.run().epoch(0, rows(0, 3))
        assert harness.ids() == {new} != {old}


def test_a_renamed_job_replays_with_the_ids_of_the_first_attempt(
    kafka: KafkaService, registry: StandIn
) -> None:
    with opened(kafka, registry) as harness, closing(Case(harness)) as case:
        old = registry.add(f"{harness.topic}-value", ORDER)
        lost = case.run().attempt(0).write(*rows(0, 3)).pre_commit()  # never decided
        sink = harness.new_sink()
        rename(sink.register(), sink.committer(), JOB, "renamed")  # type: ignore[arg-type]
        new = registry.add(f"{harness.topic}-value", NEWER)

        again = case.run("renamed")
        share = again.task(0, 0, rows(0, 3))
        again.commit(0, [share])

        assert share.committable.digest == lost.committable.digest  # type: ignore[union-attr]
        assert harness.ids() == {old} != {new}


def test_two_sinks_of_one_job_and_topic_keep_ids_of_their_own(
    kafka: KafkaService, registry: StandIn
) -> None:
    fewer = {**ORDER, "fields": ORDER["fields"][:1]}
    with opened(kafka, registry) as harness:
        ids = [registry.add(f"{harness.topic}-value", each) for each in (fewer, ORDER)]
        options = [
            KafkaOptions.parse({**harness.given, "value.schema": json.dumps(each)})
            for each in (fewer, ORDER)
        ]
        types = {"value": pa.struct([("id", pa.int64())])}, {"value": STRUCT}
        tasks = [replace(_task(), partition=number * STRIDE) for number in range(2)]
        for _ in range(2):
            found = [
                pinned(mine, task, Chooser(mine, columns))["value"]
                for mine, task, columns in zip(options, tasks, types, strict=True)
            ]
            assert found == ids
        shared = [cell_of(tasks[0], mine) for mine in options]
        assert shared[0] == shared[1], "without the number they would share a note"


def test_the_note_of_another_release_is_refused() -> None:
    text = json.loads(Pins(1, 0, {"value": 1}).to_text())
    assert text == {
        "generation": 1,
        "since": 0,
        "ids": {"value": 1},
        "before": None,
        "format": pins.FORMAT,
    }
    assert Pins.from_text("job", json.dumps(text)).ids == {"value": 1}
    with pytest.raises(Exception, match="format"):
        Pins.from_text("job", json.dumps({**text, "format": 2}))


@pytest.mark.parametrize("own", [True, False])
def test_wal_keeps_encoded_records_in_its_segments(
    kafka: KafkaService, registry: StandIn, own: bool, tmp_path: Any
) -> None:
    kafka.start()
    variant = Variant("wal", own_register=own)
    with (
        closing(_log(kafka, variant, tmp_path, registry)) as harness,
        closing(Case(harness)) as case,
    ):
        number = registry.add(f"{harness.topic}-value", ORDER)
        case.run().epoch(0, rows(0, 3), rows(10, 3))
        case.finished(rows(0, 3), rows(10, 3), when="after the epoch")
        assert harness.ids() == {number}


def _log(kafka: KafkaService, variant: Variant, folder: Any, registry: StandIn) -> AvroLog:
    given = {"value.format": "avro", "registry.url": registry.url}
    return AvroLog(kafka.bootstrap, variant, folder, given)


def test_a_crash_at_any_step_changes_nothing(kafka: KafkaService, registry: StandIn) -> None:
    @contextmanager
    def opener() -> Iterator[AvroHarness]:
        with opened(kafka, registry) as harness:
            registry.add(f"{harness.topic}-value", ORDER)
            yield harness

    points = {CrashPoint.AFTER_FIRST_BATCH, CrashPoint.AFTER_PRE_COMMIT}
    with ForkServer() as fork_server:
        killed = check_crashes(opener, fork_server, passages=1, points=sorted(points))
    assert set(killed.points) == points


def test_a_value_that_the_schema_cannot_hold_is_named_by_its_row(
    kafka: KafkaService, registry: StandIn
) -> None:
    with opened(kafka, registry) as harness, closing(Case(harness)) as case:
        required = {**ORDER, "fields": [ORDER["fields"][0], {"name": "text", "type": "string"}]}
        registry.add(f"{harness.topic}-value", required)
        attempt = case.run().attempt(0).write(*rows(0, 2))
        with pytest.raises(RowError) as refused:
            attempt.write((7, "x"), (8, None))  # type: ignore[arg-type]
        assert 'Column "value.text": 1 of 2 values are NULL' in str(refused.value)
        assert "row 3 of the task (key=8)" in str(refused.value)
        attempt.writer.abort()


def test_a_registry_without_the_schema_is_an_error_with_the_schema_to_register(
    kafka: KafkaService, registry: StandIn
) -> None:
    with opened(kafka, registry) as harness:
        [error] = [
            each for each in harness.new_sink().preflight(JOB) if each.severity is Severity.ERROR
        ]
        assert f"has no such schema under {harness.topic}-value" in error.what
        told = json.loads(error.remedy.partition("registry.register=true: ")[2])
        assert [each["name"] for each in told["fields"]] == ["id", "text"]
        with pytest.raises(SchemaError, match="has no such schema"):
            harness.new_sink().writer(_task()).write(_batch())


def _task() -> Task:
    return Task("0" * 16, JOB, 1, 0, 0, "a" * 12)


def _batch() -> pa.RecordBatch:
    return pa.record_batch([pa.array([1]), pa.array(["a"])], names=["id", "value"])


def test_a_schema_is_registered_where_the_options_allow_it(
    kafka: KafkaService, registry: StandIn
) -> None:
    with opened(kafka, registry, {"registry.register": "true"}) as harness:
        found = [each.severity for each in harness.new_sink().preflight(JOB)]
        assert Severity.ERROR not in found
        assert not [each for each in registry.asked if each.endswith("versions")], "it changed it"
        with closing(Case(harness)) as case:
            case.run().epoch(0, rows(0, 3))
            case.finished(rows(0, 3), when="after the epoch")
        assert harness.ids() == {1}


def test_a_new_version_is_registered_where_the_newest_does_not_fit(
    kafka: KafkaService, registry: StandIn
) -> None:
    with opened(kafka, registry, {"registry.register": "true"}) as harness:
        subject = f"{harness.topic}-value"
        old = registry.add(subject, {**ORDER, "fields": ORDER["fields"][:1]})
        with closing(Case(harness)) as case:
            case.run().epoch(0, rows(0, 3))
            case.finished(rows(0, 3), when="after the epoch")
        [number] = harness.ids()
        assert number != old
        schema = SchemaRegistryClient({"url": registry.url}).get_schema(number)
        assert json.loads(str(schema.schema_str))["name"] == "shop.Order"


@pytest.mark.parametrize(
    ("how", "subject"),
    [
        ("topic", "{topic}-value"),
        ("record", "shop.Order"),
        ("TopicRecordNameStrategy", "{topic}-shop.Order"),
    ],
)
def test_each_strategy_has_its_subject(
    kafka: KafkaService, registry: StandIn, how: str, subject: str
) -> None:
    given = {"value.schema": json.dumps(ORDER), "value.subject.name.strategy": how}
    with opened(kafka, registry, given) as harness, closing(Case(harness)) as case:
        registry.add("other", KEY)
        number = registry.add(subject.format(topic=harness.topic), ORDER)
        case.run().epoch(0, rows(0, 3))
        assert harness.ids() == {number}


def test_a_registry_that_is_away_for_a_while_costs_time_and_no_row(
    kafka: KafkaService, registry: StandIn
) -> None:
    with opened(kafka, registry, {"patience": "1s"}) as harness:
        registry.add(f"{harness.topic}-value", ORDER)
        registry.status = 503
        with closing(Case(harness)) as case:
            attempt = case.run().attempt(0)
            with pytest.raises(UnavailableError, match="schema registry at"):
                attempt.write(*rows(0, 3))
            attempt.writer.abort()
            registry.status = None
            case.run().epoch(0, rows(0, 3))
            case.finished(rows(0, 3), when="after the registry came back")
