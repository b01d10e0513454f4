"""Who sends the records is decided once, from the options, and said; what cannot be is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from kafka.net.connection import KafkaConnection

from abs_clients.kafka.configs import admin_settings
from abs_clients.kafka.setting_table import TWO_PHASE
from abs_core.errors import OptionError
from abs_sinks.kafka import KafkaOptions, KafkaSink
from abs_sinks.kafka.columnar.transport import missing_for_producer
from abs_sinks.kafka.sink import guarantee
from abs_sources.kafka.options import KafkaSourceOptions

SCHEMA = pa.schema([("value", pa.string())])

LIBRDKAFKAS = [
    "linger.ms",
    "queue.buffering.max.messages",
    "message.timeout.ms",
    "retries",
    "sticky.partitioning.linger.ms",
    "socket.keepalive.enable",
]


def _options(**more: str) -> KafkaOptions:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1"}
    return KafkaOptions.parse(
        given | {name.replace("__", "."): each for name, each in more.items()}
    )


@pytest.mark.parametrize("protocol", ["2pc", "wal", "idempotent"])
def test_records_of_one_topic_are_sent_column_by_column_under_every_protocol(protocol: str) -> None:
    more = {"wal": "file:///tmp/log"} if protocol == "wal" else {}
    chosen = _options(topic="t", protocol=protocol, **more).choice
    assert chosen.columnar
    assert "column by column" in chosen.text
    assert "topic t" in chosen.text


def test_records_that_name_their_topics_are_librdkafkas() -> None:
    chosen = _options().choice
    assert not chosen.columnar
    assert "writes to one topic" in chosen.text
    assert not chosen.warning


@pytest.mark.parametrize("name", LIBRDKAFKAS)
def test_a_setting_that_only_librdkafka_has_is_given_to_librdkafka(name: str) -> None:
    value = "true" if name.endswith("enable") else "5"
    chosen = _options(topic="t", **{f"kafka__{name}": value}).choice
    assert not chosen.columnar
    assert f"kafka.{name}" in chosen.text


@pytest.mark.parametrize(
    ("name", "value", "columnar"),
    [
        ("compression.type", "zstd", True),
        ("compression.type", "snappy", True),
        ("acks", "all", True),
        ("batch.size", "50000", True),
        ("message.max.bytes", "2000000", True),
        ("transaction.timeout.ms", "300000", True),
        ("client.id", "mine", True),
        ("partitioner", "murmur2_random", True),
        ("partitioner", "random", True),
        ("partitioner", "consistent", False),
        ("partitioner", "fnv1a_random", False),
    ],
)
def test_a_setting_is_heeded_or_left_to_librdkafka(name: str, value: str, columnar: bool) -> None:
    assert _options(topic="t", **{f"kafka__{name}": value}).choice.columnar is columnar


@pytest.mark.parametrize(("codec", "columnar"), [("lz4", False), ("gzip", True), ("zstd", True)])
def test_a_level_of_compression_is_heeded_where_the_codec_has_one_here(
    codec: str, columnar: bool
) -> None:
    more = {"kafka__compression.type": codec, "kafka__compression.level": "4"}
    assert _options(topic="t", **more).choice.columnar is columnar


def test_a_guard_that_only_librdkafka_has_is_never_left_out() -> None:
    crl = {"kafka__security.protocol": "ssl", "kafka__ssl.cipher.suites": "AES256-SHA"}
    chosen = _options(topic="t", **crl).choice
    assert not chosen.columnar
    assert "kafka.ssl.cipher.suites" in chosen.text
    with pytest.raises(OptionError, match=r"does not heed kafka\.ssl\.cipher\.suites"):
        _options(topic="t", producer="columnar", **crl)


def test_each_producer_can_be_forced() -> None:
    assert not _options(topic="t", producer="librdkafka").choice.columnar
    assert _options(topic="t", producer="columnar", **{"kafka__linger.ms": "5"}).choice.columnar


def test_a_producer_that_is_forced_where_it_cannot_be_is_refused_with_a_way_out() -> None:
    with pytest.raises(OptionError, match="set the option topic, or set producer=librdkafka"):
        _options(producer="columnar")
    with pytest.raises(OptionError, match="writes to one topic"):
        KafkaSink(KafkaOptions(_options(topic="t").kafka, producer="columnar"), SCHEMA)


@pytest.fixture
def other_version(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A kafka-python whose connections send requests by another name."""
    monkeypatch.delattr(KafkaConnection, "send_request")
    missing_for_producer.cache_clear()
    yield
    monkeypatch.undo()
    missing_for_producer.cache_clear()


@pytest.mark.usefixtures("other_version")
def test_a_kafka_python_that_lacks_what_is_needed_is_done_without_and_that_is_said() -> None:
    chosen = _options(topic="t").choice
    assert not chosen.columnar
    assert "KafkaConnection.send_request" in chosen.warning
    with pytest.raises(OptionError, match="send_request"):
        _options(topic="t", producer="columnar")


@pytest.mark.parametrize("topic", [{"topic": "t"}, {}])
def test_the_guarantee_says_who_sends_and_why(topic: dict[str, str]) -> None:
    options = _options(**topic)
    assert options.choice.text in guarantee(options).notes


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"topic": "t", "producer": "librdkafka"}, "producer=librdkafka"),
        ({"topic": "t", "kafka__linger.ms": "5"}, "only librdkafka has kafka.linger.ms"),
        ({}, "writes to one topic"),
        ({"topic": "t", "protocol": "idempotent"}, "no meaning for protocol=idempotent"),
        ({"topic": "t", "protocol": "wal", "wal": "file:///wal"}, "no meaning for protocol=wal"),
    ],
)
def test_transactions_without_a_timeout_are_refused_where_they_cannot_be(
    more: dict[str, str], named: str
) -> None:
    asked = {f"kafka__{TWO_PHASE}": "true"}
    with pytest.raises(OptionError, match=named) as caught:
        _options(**more, **asked)
    assert f"kafka.{TWO_PHASE}" in str(caught.value)
    assert not _options(**more, **{f"kafka__{TWO_PHASE}": "false"}).kafka.two_phase


def test_transactions_without_a_timeout_are_said_in_the_guarantee_and_not_given_to_librdkafka() -> (
    None
):
    options = _options(topic="t", **{f"kafka__{TWO_PHASE}": "true"})
    assert options.choice.columnar
    limits = " ".join(guarantee(options).limits)
    assert "no timeout ends it" in limits
    assert "are lost" not in limits
    assert TWO_PHASE not in admin_settings(options.kafka)
    with pytest.raises(OptionError, match="true or false"):
        _options(topic="t", **{f"kafka__{TWO_PHASE}": "yes"})
    with pytest.raises(OptionError, match="a source writes nothing"):
        KafkaSourceOptions.parse(
            {"kafka.bootstrap.servers": "a:1", "subscribe": "t", f"kafka.{TWO_PHASE}": "true"}
        )
