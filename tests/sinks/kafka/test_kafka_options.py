"""Options are read once, refused all together, and never show a secret."""

from __future__ import annotations

import pickle

import pytest
from confluent_kafka import KafkaError, KafkaException

from abs_clients.kafka.errors import to_abs_error
from abs_clients.kafka.settings import Settings
from abs_core.errors import OptionError
from abs_sinks.kafka import KafkaOptions

GIVEN = {"kafka.bootstrap.servers": "a:9092", "topic": "t"}


def test_the_least_that_is_needed_is_read_with_defaults() -> None:
    options = KafkaOptions.parse(GIVEN)
    assert (options.topic, options.protocol, options.kafka.bootstrap) == ("t", "2pc", "a:9092")
    assert options.kafka.transaction_timeout_ms == 900_000


def test_names_are_read_in_any_case() -> None:
    options = KafkaOptions.parse({"KAFKA.Bootstrap.Servers": "a:9092", "TOPIC": "t"})
    assert options == KafkaOptions.parse(GIVEN)


def test_options_can_be_hashed_and_pickled() -> None:
    options = KafkaOptions.parse(GIVEN)
    assert hash(pickle.loads(pickle.dumps(options))) == hash(options)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"kafka.sasl.jaas.config": "x"}, "kafka.sasl.username"),
        ({"kafka.ssl.truststore.location": "x"}, "kafka.ssl.ca.location"),
        ({"kafka.ssl.keystore.location": "x"}, "kafka.ssl.certificate.location"),
        ({"kafka.ssl.certificate.location": "x"}, "and no key"),
        ({"kafka.ssl.key.pem": "x"}, "and no certificate"),
        ({"kafka.key.serializer": "x"}, "strings or binaries"),
        ({"kafka.buffer.memory": "1"}, "kafka.queue.buffering.max.kbytes"),
        ({"kafka.max.request.size": "1"}, "kafka.message.max.bytes"),
        ({"kafka.enable.idempotence": "false"}, "contradicts exactly-once"),
        ({"kafka.acks": "1"}, "contradicts exactly-once"),
        ({"kafka.transactional.id": "mine"}, "names its transactions itself"),
        ({"kafka.max.in.flight.requests.per.connection": "6"}, "at most 5"),
        ({"kafka.linger": "5"}, "kafka.linger.ms"),
        ({"kafka.linger.ms": "soon"}, "kafka.linger.ms cannot be used"),
        ({"kafka.compression.type": "brotli"}, "kafka.compression.type cannot be used"),
        ({"kafka.retries": "0"}, "no transaction: `retries` must be"),
        ({"kafka.message.timeout.ms": "900001"}, "no transaction: `message.timeout.ms`"),
        ({"kafka.queuing.strategy": "lifo"}, "no transaction: `queuing.strategy`"),
        ({"kafka.transaction.timeout.ms": "-1"}, "milliseconds"),
        ({"subscribe": "t"}, "option of the source"),
        ({"write": "upsert"}, "leave it out: this sink appends"),
        ({"key": "id"}, "the column key is the record's key"),
        ({"path": "t"}, "use topic"),
        ({"topik": "t"}, "topic"),
        ({"topic": "no/topic"}, "not a topic name"),
        ({"protocol": "wal"}, "needs the option wal"),
        ({"wal": "file:///x"}, "did you mean protocol=wal"),
        ({"topic": "abs-register"}, "the one that holds the registers"),
        ({"kafka.bootstrap.servers": " "}, "is empty"),
    ],
)
def test_what_cannot_work_is_refused_with_the_way_out(more: dict[str, str], named: str) -> None:
    with pytest.raises(OptionError) as caught:
        KafkaOptions.parse({**GIVEN, **more})
    assert named in str(caught.value)


@pytest.mark.parametrize(
    "same",
    [
        "kafka.acks=all",
        "kafka.acks=-1",
        "kafka.enable.idempotence=true",
        "kafka.retries=5",
        "kafka.message.timeout.ms=900000",
        "kafka.delivery.timeout.ms=100000",
    ],
)
def test_what_is_needed_anyway_may_be_written_down(same: str) -> None:
    name, _, value = same.partition("=")
    assert KafkaOptions.parse({**GIVEN, name: value})


def test_everything_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(OptionError, match="3 options are wrong"):
        KafkaOptions.parse({"kafka.acks": "0", "kafka.sasl.jaas.config": "x", "topic": "t"})


def test_no_secret_is_shown() -> None:
    secrets = {
        "kafka.sasl.username": "geheim-user",
        "kafka.sasl.password": "geheim-1",
        "kafka.ssl.key.password": "geheim-2",
        "kafka.ssl.key.pem": "geheim-3",
        "kafka.ssl.certificate.pem": "may be seen by all",
        "kafka.sasl.oauthbearer.client.secret": "geheim-4",
        "kafka.sasl.oauthbearer.config": "principal=geheim-5",
        "kafka.sasl.oauthbearer.assertion.private.key.file": "/geheim-6",
        "kafka.sasl.oauthbearer.assertion.private.key.passphrase": "geheim-7",
        "kafka.sasl.oauthbearer.assertion.private.key.pem": "geheim-8",
        "kafka.sasl.oauthbearer.token.endpoint.url": "https://user:geheim-9@host/token",
    }
    options = KafkaOptions.parse({**GIVEN, **secrets})
    assert "geheim" not in repr(options)
    with pytest.raises(OptionError) as caught:
        KafkaOptions.parse({**GIVEN, **secrets, "kafka.security.protocol": "nosuch"})
    assert "geheim" not in str(caught.value)


def test_a_setting_that_is_not_known_to_be_harmless_is_not_shown() -> None:
    """librdkafka gets new ones with each release."""
    pairs = (("bootstrap.servers", "host:1"), ("linger.ms", "5"), ("some.new.credential", "geheim"))
    shown = repr(Settings(pairs))
    assert "geheim" not in shown
    assert "host:1" in shown
    assert "linger.ms=5" in shown


@pytest.mark.parametrize(
    "said",
    [
        "Unrecognized sasl.oauthbearer.config beginning at: scope=geheim x=y",
        "Failed to retrieve OIDC token from https://user:geheim@host/token",
        "refused: the-geheim-value",
    ],
)
def test_what_a_client_quotes_of_a_secret_is_not_shown(said: str) -> None:
    settings = Settings((("sasl.oauthbearer.extensions", "the-geheim-value"),))
    error = KafkaException(KafkaError(KafkaError._AUTHENTICATION, said))
    shown = to_abs_error(error, "connecting", settings).what
    assert "geheim" not in shown
    assert "***" in shown
