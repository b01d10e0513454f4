"""Each of Kafka's error codes means one thing, to sinks and sources, and by either client."""

from __future__ import annotations

import kafka.errors
import pytest
from confluent_kafka import KafkaError

from abs_clients.kafka.codes import (
    CONSUMER_RETRIES,
    MEANINGS,
    PRODUCE_RETRIABLE,
    UNHEARD,
    number_of,
)
from abs_clients.kafka.errors import to_abs_error
from abs_core.errors import (
    AbsError,
    ContentionError,
    CorruptionError,
    FencedError,
    OptionError,
    PreflightError,
    RefusedError,
    RowError,
    SchemaError,
    TargetError,
    UnavailableError,
)

EXPECTED: dict[type[AbsError], str] = {
    UnavailableError: """
        LEADER_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION REQUEST_TIMED_OUT BROKER_NOT_AVAILABLE
        REPLICA_NOT_AVAILABLE NETWORK_EXCEPTION COORDINATOR_LOAD_IN_PROGRESS
        COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR NOT_ENOUGH_REPLICAS
        NOT_ENOUGH_REPLICAS_AFTER_APPEND NOT_CONTROLLER KAFKA_STORAGE_ERROR LISTENER_NOT_FOUND
        FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH OFFSET_NOT_AVAILABLE PREFERRED_LEADER_NOT_AVAILABLE
        CONCURRENT_TRANSACTIONS THROTTLING_QUOTA_EXCEEDED FETCH_SESSION_ID_NOT_FOUND
        INVALID_FETCH_SESSION_EPOCH ELIGIBLE_LEADERS_NOT_AVAILABLE UNSTABLE_OFFSET_COMMIT
        STALE_CTRL_EPOCH STALE_BROKER_EPOCH INCONSISTENT_TOPIC_ID UNKNOWN_TOPIC_ID
        _TRANSPORT _RESOLVE _ALL_BROKERS_DOWN _TIMED_OUT _MSG_TIMED_OUT _PURGE_QUEUE _PURGE_INFLIGHT
        _DESTROY _FAIL _WAIT_COORD _TIMED_OUT_QUEUE _WAIT_CACHE _RETRY _UNKNOWN_BROKER _NODE_UPDATE
        _INTR _IN_PROGRESS _PREV_IN_PROGRESS _OUTDATED _DESTROY_BROKER _LOG_TRUNCATION
        _MAX_POLL_EXCEEDED _NOENT
    """,
    RefusedError: """
        _SSL _AUTHENTICATION UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE SASL_AUTHENTICATION_FAILED
        TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED POLICY_VIOLATION UNSUPPORTED_VERSION
        _UNSUPPORTED_FEATURE
    """,
    SchemaError: "UNKNOWN_TOPIC_OR_PART _UNKNOWN_TOPIC TOPIC_EXCEPTION",
    OptionError: "_INVALID_ARG _CONFLICT",
    PreflightError: "INVALID_TRANSACTION_TIMEOUT",
    RowError: """
        _UNKNOWN_PARTITION MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE INVALID_TIMESTAMP INVALID_RECORD
    """,
    CorruptionError: "INVALID_MSG _BAD_MSG _BAD_COMPRESSION",
    FencedError: "_FENCED INVALID_PRODUCER_EPOCH PRODUCER_FENCED",
    ContentionError: """
        INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING UNKNOWN_PRODUCER_ID
        OUT_OF_ORDER_SEQUENCE_NUMBER TRANSACTION_ABORTABLE
    """,
    TargetError: "_PARTITION_EOF OFFSET_OUT_OF_RANGE",
}
ROWS = [(name, kind) for kind, names in EXPECTED.items() for name in names.split()]


@pytest.mark.parametrize(("name", "kind"), ROWS)
def test_a_code_means_the_same_by_either_client(name: str, kind: type[AbsError]) -> None:
    code = number_of(name)
    found = [to_abs_error(KafkaError(code), "testing")]
    if code > 0:
        found.append(to_abs_error(kafka.errors.for_code(code)("said"), "testing"))
    assert [type(each) for each in found] == [kind] * len(found)
    assert f"[{code}]" in str(found[0])


def test_the_table_has_no_other_rows_and_no_code_twice() -> None:
    assert sorted(MEANINGS) == sorted(name for name, _ in ROWS)
    assert len({number_of(name) for name in MEANINGS}) == len(MEANINGS)
    assert all(number_of(name) for name in MEANINGS)


@pytest.mark.parametrize("name", ["UNKNOWN", "_STATE", "_FS", "INVALID_CONFIG", "INVALID_REQUEST"])
def test_a_code_that_is_in_no_row_is_final(name: str) -> None:
    error = to_abs_error(KafkaError(number_of(name)), "testing")
    assert type(error) is TargetError
    assert not error.retryable


def test_what_a_consumer_tries_again_passes_or_concerns_its_group() -> None:
    group = {number_of("GROUP_AUTHORIZATION_FAILED")}
    for code in CONSUMER_RETRIES - group:
        assert to_abs_error(KafkaError(code), "reading").retryable
    assert number_of("_TRANSPORT") in CONSUMER_RETRIES
    assert number_of("OFFSET_OUT_OF_RANGE") not in CONSUMER_RETRIES


def test_what_may_be_produced_again_passes_but_for_what_only_the_protocol_calls_retriable() -> None:
    lasting = {number_of("UNKNOWN_TOPIC_OR_PART"), number_of("INVALID_MSG")}
    assert lasting < PRODUCE_RETRIABLE
    for code in PRODUCE_RETRIABLE - lasting:
        assert to_abs_error(KafkaError(code), "sending").retryable


def test_a_topic_that_a_broker_has_not_heard_of_is_one_thing_by_all_its_codes() -> None:
    names = ("UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
    assert set(map(number_of, names)) == UNHEARD
