"""A broker that has not heard of a topic yet, of which others have: that ends no job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from abs_clients.kafka import timeouts
from abs_clients.kafka.topics import configs_in_time, topic_facts, topics_in_time
from abs_core.contracts import Task
from abs_core.errors import RowError, SchemaError, UnavailableError
from abs_core.wal import FolderSegments
from abs_sinks.kafka import side_topic as winners
from abs_sinks.kafka.columnar.encoder import Encoder
from abs_sinks.kafka.columnar.recordbatch import ProducerIdentity
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.records import plan_columns, records_of
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.register.tail import MissingError
from abs_sinks.kafka.wal import WalWriter
from tests.sinks.kafka.standins import Broker

OPTIONS = KafkaOptions.parse(
    {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "protocol": "idempotent"}
)


VALUE = pa.record_batch({"value": ["v"]})
COMPACTED = Broker(["t"], configs={"cleanup.policy": "compact"})
NEVER_HEARD = Broker(code=KafkaError.UNKNOWN_TOPIC_OR_PART)
HALF_HEARD = Broker(["t"], code=KafkaError.UNKNOWN_TOPIC_OR_PART)
"""The topic was seen; the broker that is asked for its settings has not heard of it."""


def test_settings_of_a_topic_that_was_just_seen_are_asked_for_again(standins: list[Broker]) -> None:
    standins += [HALF_HEARD, HALF_HEARD, COMPACTED]
    assert configs_in_time(OPTIONS.kafka, "t") == COMPACTED.configs


def test_settings_that_go_on_to_be_unheard_of_are_not_taken_for_none(
    standins: list[Broker],
) -> None:
    standins += [HALF_HEARD]
    with pytest.raises(UnavailableError, match="topic t yet"):
        configs_in_time(OPTIONS.kafka, "t")


def test_settings_of_a_topic_that_nobody_has_seen_are_not_asked_for_again(
    standins: list[Broker],
) -> None:
    standins += [NEVER_HEARD, COMPACTED]
    with pytest.raises(SchemaError):
        winners.side_config(OPTIONS.kafka, "t")


def test_a_broker_that_has_not_heard_of_a_topic_does_not_hide_that_it_is_compacted(
    standins: list[Broker],
) -> None:
    standins += [HALF_HEARD, HALF_HEARD, COMPACTED]
    assert topic_facts(OPTIONS.kafka, ["t"])["t"].compacted


def test_a_topic_that_is_deleted_while_it_is_looked_at_is_not_there(standins: list[Broker]) -> None:
    standins += [HALF_HEARD, NEVER_HEARD]
    assert topic_facts(OPTIONS.kafka, ["t"]) == {}


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
def test_settings_that_no_broker_tells_are_not_taken_for_the_defaults(
    standins: list[Broker], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    unheard = code == KafkaError.UNKNOWN_TOPIC_OR_PART
    monkeypatch.setattr(timeouts, "UNHEARD_PAUSES", (0.0,) if unheard else ())
    standins += [Broker(["t"], code)] * (2 if unheard else 1) + [COMPACTED]
    with pytest.raises(UnavailableError):
        topics_in_time(OPTIONS.kafka, ["t"])
    assert topic_facts(OPTIONS.kafka, ["t"])["t"].compacted


@pytest.mark.parametrize(
    "code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED]
)
def test_a_topic_whose_settings_may_not_be_read_is_there_all_the_same(
    standins: list[Broker], code: int
) -> None:
    standins += [Broker(["t"], code)]
    assert topic_facts(OPTIONS.kafka, ["t"])["t"].configs == ()


def test_a_topic_that_the_first_brokers_have_not_heard_of_is_written_to(
    standins: list[Broker], tmp_path: Path
) -> None:
    standins += [NEVER_HEARD, NEVER_HEARD, Broker(["t"])]
    _written(OPTIONS, {}, tmp_path)


def test_a_row_may_name_a_topic_that_the_first_brokers_have_not_heard_of(
    standins: list[Broker], tmp_path: Path
) -> None:
    standins += [NEVER_HEARD, NEVER_HEARD, Broker(["t"])]
    _written(replace(OPTIONS, topic=None), {"topic": ["t"]}, tmp_path)


def test_a_transaction_is_encoded_although_its_topic_is_not_seen_at_once(
    standins: list[Broker],
) -> None:
    standins += [NEVER_HEARD, NEVER_HEARD, Broker(["t"])]
    encoder = Encoder(OPTIONS.kafka, "t", ProducerIdentity("id", 1, 0))
    encoder.gather(records_of(VALUE, plan_columns(VALUE.schema, "t")))
    assert [batch.count for batch in encoder.batches()] == [1]


def test_a_compacted_topic_is_refused_although_it_is_not_seen_at_once(
    standins: list[Broker],
) -> None:
    standins += [NEVER_HEARD, NEVER_HEARD, COMPACTED]
    (told,) = winners.findings(OPTIONS)
    assert "compacted" in told.what


def test_a_topic_that_no_broker_knows_is_told_after_a_while(
    standins: list[Broker], tmp_path: Path
) -> None:
    standins += [NEVER_HEARD]
    with pytest.raises(SchemaError, match="Topic t does not exist"):
        _written(OPTIONS, {}, tmp_path)
    with pytest.raises(RowError, match="name a topic that does not exist"):
        _written(replace(OPTIONS, topic=None), {"topic": ["t"]}, tmp_path)


@dataclass
class HalfKnown:
    """Stands in for a register's session: its reader has not heard of the topic."""

    there: bool

    def tail(self, partition: int) -> HalfKnown:
        return self

    def all(self, patience: float) -> None:
        raise MissingError("There is no topic, as far as this client has heard.")

    def topic_exists(self) -> bool:
        return self.there


def test_a_register_that_one_client_has_not_heard_of_is_not_taken_for_empty() -> None:
    session: Any = HalfKnown(there=True)
    with pytest.raises(MissingError):
        KafkaRegister(OPTIONS, session).jobs()


def test_a_register_that_nobody_has_heard_of_holds_no_job() -> None:
    session: Any = HalfKnown(there=False)
    assert KafkaRegister(OPTIONS, session).jobs() == []


def _written(options: KafkaOptions, more: Mapping[str, list[str]], folder: Path) -> None:
    """Check a record by a writer that needs no broker for the rest."""
    batch = pa.record_batch({"value": ["v"], **more})
    task = Task("0123456789abcdef", "job", 1, 0, 0, "ab")
    writer = WalWriter(options, batch.schema, task, FolderSegments(folder), ledger=False)
    try:
        writer.write(batch)
    finally:
        writer.abort()
