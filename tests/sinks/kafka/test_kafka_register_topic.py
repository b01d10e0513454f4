"""How a register's states lie in its topic, and what topic can hold them."""

from __future__ import annotations

import secrets
from dataclasses import replace

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined] # they are there
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from abs_core.codec import state_to_text
from abs_core.contracts import Conflict, Stored
from abs_core.errors import PreflightError, RefusedError
from abs_services import KafkaService
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register.session import Session
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.register.topic import PARTITIONS, partition_of
from abs_testing.check_register import a_state_comes_back_as_it_was
from tests.kit.kafka_reading import messages
from tests.sinks.kafka.registers import STATE, create, options_of

pytestmark = pytest.mark.services


def test_a_state_larger_than_a_message_is_kept_in_parts(kafka: KafkaService) -> None:
    options = options_of(kafka)
    _make(options, PARTITIONS, {"cleanup.policy": "compact", "max.message.bytes": "6000"})
    register = KafkaRegister(options)
    a_state_comes_back_as_it_was(lambda: KafkaRegister(options))
    large = replace(STATE, superseded=tuple(secrets.token_hex(16) for _ in range(1000)))
    assert len(state_to_text(large)) > 5 * 6000
    version = register.compare_and_set("job", None, large)
    assert not isinstance(version, Conflict)
    cold = Session(options)
    assert KafkaRegister(options, cold).load("job") == Stored(large, version)
    cold.close()
    # Each change takes the parts of the one before away.
    for _ in range(2):
        version = register.compare_and_set("job", version, replace(large, generation=2))
        assert not isinstance(version, Conflict)
    last = register.compare_and_set("job", version, STATE)
    assert register.load("job") == Stored(STATE, str(last))
    alive = {key for key, value in _everything(options, partition_of("job")).items() if value}
    assert [key for key in alive if key.startswith(b"job#")] == []


@pytest.mark.parametrize("client", [{}, {"kafka.message.max.bytes": "100000"}])
def test_a_state_of_megabytes_is_kept_although_the_client_takes_less_than_the_topic(
    kafka: KafkaService, job: str, client: dict[str, str]
) -> None:
    options = options_of(kafka, client)
    large = replace(STATE, job=job, superseded=tuple(secrets.token_hex(16) for _ in range(60_000)))
    assert len(state_to_text(large)) > 2_000_000
    version = KafkaRegister(options).compare_and_set(job, None, large)
    cold = Session(options)
    assert KafkaRegister(options, cold).load(job) == Stored(large, str(version))
    cold.close()


@pytest.mark.parametrize(
    ("partitions", "policy", "said"),
    [(PARTITIONS, "delete", "cleanup.policy"), (3, "compact", "3 partitions of 4")],
)
def test_a_topic_that_cannot_hold_registers_is_refused(
    kafka: KafkaService, partitions: int, policy: str, said: str
) -> None:
    options = options_of(kafka)
    _make(options, partitions, {"cleanup.policy": policy})
    with pytest.raises(PreflightError, match=said):
        KafkaRegister(options).compare_and_set("job", None, STATE)


@pytest.mark.parametrize("protocol", ["2pc", "wal"])
def test_a_topic_that_does_not_take_the_register_s_record_is_named(
    protocol: str, kafka: KafkaService
) -> None:
    options = options_of(
        kafka, {"protocol": protocol, "wal": "file:///tmp"} if protocol == "wal" else {}
    )
    _make(options, PARTITIONS, {"cleanup.policy": "compact", "max.message.bytes": "150"})
    with pytest.raises(
        RefusedError, match=f"{options.registertopic}, which holds the job's"
    ) as met:
        KafkaRegister(options).compare_and_set("job", None, STATE)
    assert (met.value.job, met.value.handle) == ("job", None)
    assert KafkaRegister(options).load("job") is None


def test_the_topic_is_made_with_the_right_settings(
    register_options: KafkaOptions, job: str
) -> None:
    create(register_options, job)
    admin = AdminClient(dict(register_options.kafka.pairs))
    resource = ConfigResource(ResourceType.TOPIC, register_options.registertopic)
    found = admin.describe_configs([resource])[resource].result()
    assert found["cleanup.policy"].value == "compact"
    assert int(found["segment.bytes"].value) <= 4 << 20
    partitions = admin.list_topics().topics[register_options.registertopic].partitions
    assert len(partitions) == PARTITIONS


def _make(options: KafkaOptions, partitions: int, config: dict[str, str]) -> None:
    admin = AdminClient(dict(options.kafka.pairs))
    topic = NewTopic(options.registertopic, partitions, 1, config=config)
    admin.create_topics([topic])[options.registertopic].result()


def _everything(options: KafkaOptions, partition: int) -> dict[bytes, bytes | None]:
    """The last committed value of each key."""
    given = dict(options.kafka.pairs)
    read = messages(given, options.registertopic, partition)
    return {message.key() or b"": message.value() for message in read}
