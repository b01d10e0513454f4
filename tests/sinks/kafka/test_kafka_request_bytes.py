"""Requests whose bytes carry the guarantee, as they leave; and the settings that librdkafka gets."""

from __future__ import annotations

import pytest

from abs_clients.kafka.configs import producer_settings
from abs_clients.kafka.transactions import EndTxn, _end_request
from abs_sinks.kafka.columnar import transport
from abs_sinks.kafka.columnar.outbox import Batch
from abs_sinks.kafka.columnar.recordbatch import ProducerIdentity
from abs_sinks.kafka.columnar.transport import adding, producing
from abs_sinks.kafka.options import KafkaOptions

WHO = ProducerIdentity("id", 7, 3)
PRODUCE = (
    b"\x03id"  # transactional id
    b"\xff\xff"  # acks: all replicas in sync
    b"\x00\x00'\x10"  # 10 s, shorter than the request's own limit
    b"\x02\x02t\x02\x00\x00\x00\x05\x04xyz\x00\x00\x00"  # topic t, partition 5, the batch
)


def produced() -> bytes:
    request = producing(WHO, "t", [Batch(5, 0, 1, b"xyz")])
    return bytes(request.encode(version=transport._PRODUCE_VERSION))


def test_records_are_acknowledged_by_all_replicas_within_a_transaction() -> None:
    assert produced() == PRODUCE


@pytest.mark.parametrize("acks", [0, 1])
def test_fewer_acknowledgements_are_found(acks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_ALL_REPLICAS", acks)
    assert produced() != PRODUCE


def test_partitions_are_added_to_exactly_this_producers_transaction() -> None:
    sent = adding(WHO, "t", [0, 2]).encode(version=transport._ADD_VERSION)
    assert bytes(sent) == (
        b"\x03id\x00\x00\x00\x00\x00\x00\x00\x07\x00\x03"
        b"\x02\x02t\x03\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00"
    )


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_ended_by_its_producer_and_epoch_and_as_decided(commit: bool) -> None:
    sent = _end_request(EndTxn("id", 7, 3), commit).encode(version=3)
    who = b"\x03id\x00\x00\x00\x00\x00\x00\x00\x07\x00\x03"
    assert bytes(sent) == who + bytes([commit]) + b"\x00"


def test_librdkafka_gets_what_the_guarantee_needs_whatever_the_job_sets() -> None:
    given = {"kafka.bootstrap.servers": "a:1", "topic": "t", "protocol": "2pc"}
    options = KafkaOptions.parse({**given, "kafka.acks": "all", "kafka.linger.ms": "1"})
    made = producer_settings(options.kafka, "id", lambda *_: None, 1.0)
    assert made["enable.idempotence"] == "true"
    assert made["transactional.id"] == "id"
    assert made.get("acks", "all") == "all"
    assert made["allow.auto.create.topics"] == "false"
