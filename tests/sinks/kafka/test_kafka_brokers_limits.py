"""Brokers that take small requests only, or say that they listen where nobody can reach them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from abs_clients.kafka.cluster import close_clusters
from abs_core.contracts import Sink
from abs_core.errors import RefusedError, UnavailableError
from abs_services import Provider, services
from abs_services.native.kafka import NativeKafka
from abs_sinks.kafka import KafkaOptions, KafkaSink
from abs_sinks.kafka.columnar import sender
from abs_sources.kafka import KafkaSource, KafkaSourceOptions
from abs_testing.engine import Run
from tests.kit.kafka import make_topic
from tests.kit.kafka_reading import settle
from tests.planted import planted

pytestmark = pytest.mark.services

LIMIT = 2_000_000
SCHEMA = pa.schema([("value", pa.binary()), ("partition", pa.int32())])
NOBODY = "127.0.0.1:9"


@pytest.fixture(scope="module")
def broker() -> Iterator[NativeKafka]:
    if services().provider is not Provider.NATIVE:
        pytest.skip("the broker's settings are not ours")
    with NativeKafka(settings={"socket.request.max.bytes": str(LIMIT)}) as made:
        yield made
        close_clusters()


def _written(broker: NativeKafka, spread: int = 8, **more: str) -> int:
    """Write 8 MB to so many partitions in one epoch; how many records are committed."""
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": f"t{secrets.token_hex(4)}"}
    options = KafkaOptions.parse({**given, "patience": "10s", "producer": "columnar", **more})
    assert options.topic is not None
    make_topic(options.kafka, options.topic, 8, {"max.message.bytes": "5000000"})
    sink: Sink = KafkaSink(options, SCHEMA)
    try:
        run = Run(sink, f"job{secrets.token_hex(4)}", patience=options.patience)
        attempt = run.attempt(0)
        values = [secrets.token_bytes(100_000) for _ in range(80)]
        partitions = [number % spread for number in range(80)]
        attempt.writer.write(pa.record_batch([values, partitions], schema=SCHEMA))
        attempt._rows = len(values)
        run.commit(0, [attempt.pre_commit()])
    finally:
        sink.close()
    settle(options.kafka)
    read = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": options.topic}
    source = KafkaSource(KafkaSourceOptions.parse(read, batch=True))
    begin, end = source.initial(), source.latest(source.initial(), source.options.limit)
    found = 0
    for split in source.splits(begin, end):
        reader = source.open(split)
        while not reader.finished:
            batch = reader.read(5.0)
            found += 0 if batch is None else batch.num_rows
        reader.close()
    return found


def test_requests_are_as_small_as_the_brokers_ask(broker: NativeKafka) -> None:
    assert _written(broker) == 80
    with planted((sender, "request_bytes", lambda _: None), by=UnavailableError):
        _written(broker)


def test_a_batch_that_no_request_can_carry_is_refused_at_once(broker: NativeKafka) -> None:
    large = {"kafka.batch.size": "4000000", "kafka.message.max.bytes": "5000000"}
    begun = time.monotonic()
    with pytest.raises(RefusedError, match=f"socket.request.max.bytes is {LIMIT}"):
        _written(broker, 1, patience="120s", **large)
    assert time.monotonic() - begun < 60, "before patience ends"


@pytest.fixture(scope="module")
def unreached() -> Iterator[NativeKafka]:
    if services().provider is not Provider.NATIVE:
        pytest.skip("the broker's settings are not ours")
    with NativeKafka(settings={"advertised.listeners": f"PLAINTEXT://{NOBODY}"}) as made:
        yield made
        close_clusters()


def _sink_looks(options: KafkaOptions) -> None:
    KafkaSink(options, SCHEMA).preflight("job")


def _sink_writes(options: KafkaOptions) -> None:
    Run(KafkaSink(options, SCHEMA), "job", patience=options.patience).attempt(0)


def _source_plans(options: KafkaOptions) -> None:
    given = {f"kafka.{name}": text for name, text in options.kafka.pairs}
    given |= {"subscribe": "t", "patience": "5s", "startingOffsets": "earliest"}
    KafkaSource(KafkaSourceOptions.parse(given)).initial()


@pytest.mark.parametrize("act", [_sink_looks, _sink_writes, _source_plans])
def test_an_address_that_brokers_name_and_nobody_reaches_is_in_the_error(
    unreached: NativeKafka, act: Callable[[KafkaOptions], None]
) -> None:
    given = {"kafka.bootstrap.servers": unreached.bootstrap, "topic": "t", "patience": "5s"}
    with pytest.raises(UnavailableError) as met:
        act(KafkaOptions.parse(given))
    assert NOBODY in str(met.value)
