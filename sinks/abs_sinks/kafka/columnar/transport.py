"""Requests and answers of one producer, with or without a transaction.

Requests run on the thread of the process's connection for records; answers are queued for the
sending thread. Versions are those of librdkafka: partitions are added to the transaction by a
request of their own (KIP-98), not with the first batch (KIP-890), since the transaction is ended by
EndTxn version 4 (``prepared``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from queue import Empty, SimpleQueue
from typing import Any

import kafka.errors as errors
from kafka.protocol.producer import ProduceRequest
from kafka.protocol.producer.transaction import AddPartitionsToTxnRequest

from abs_clients.kafka import private
from abs_clients.kafka.cluster import Channel, cluster
from abs_clients.kafka.errors import to_abs_error
from abs_clients.kafka.routing import coordinators_of, invalidate, leaders_of
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.timeouts import REQUEST_SECONDS
from abs_core.errors import AbsError, ContentionError, UnavailableError
from abs_sinks.kafka.columnar.outbox import Batch
from abs_sinks.kafka.columnar.recordbatch import ProducerIdentity

NO_ANSWER = 13
"""NETWORK_EXCEPTION: what became of a request is not known."""

_ALL_REPLICAS = -1
_PRODUCE_VERSION = 11
_ADD_VERSION = 3
_REPLICAS_MS = round(REQUEST_SECONDS * 1000 * 2 / 3)
"""How long a leader waits for its followers: it answers before the request is given up."""
_UNKNOWN_TOPIC = 3
"""The broker that was asked does not know it: it may be new."""
_NOT_ATTEMPTED = 55
"""OPERATION_NOT_ATTEMPTED: another partition of the request failed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one batch.

    Args:
        code: the protocol's; 0: acknowledged.
        error: why there is no code; a retry does not help.
    """

    batch: Batch
    code: int = 0
    text: str = ""
    error: Exception | None = None


class Transport:
    """Sends one producer's batches to one topic; used by one thread.

    ``unanswered`` counts sent batches whose answer was not taken yet.
    """

    def __init__(self, settings: Settings, who: ProducerIdentity, topic: str) -> None:
        self._settings = settings
        self._who = who
        self._topic = topic
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        self.unanswered = 0

    def leaders(self, partitions: Iterable[int], *, remembered: bool) -> dict[int, int]:
        """The leader's node of each partition; the cached one with ``remembered``.

        Raises TargetError if one has no leader, or no broker answers.
        """
        places = [(self._topic, partition) for partition in partitions]

        async def work(manager: Any) -> dict[int, int]:
            by_node = await leaders_of(manager, places, remembered=remembered)
            return {number: node for node, led in by_node.items() for _, number in led}

        return cluster(self._settings).run(
            f"looking who leads topic {self._topic}", work, Channel.DATA
        )

    def add(self, partitions: Sequence[int]) -> AbsError | None:
        """Add partitions to the transaction, if there is one; returns an error that can be retried.

        Raises:
            FencedError, ContentionError: the transaction is over, or was taken over.
            UnavailableError: there is no answer. Do not retry: after the commit, a late request
                would begin another transaction under the same producer id and epoch, and hide that
                this one was committed. The next attempt has another epoch.
            TargetError: the coordinator refuses.
        """
        id_ = self._who.transactional_id
        if id_ is None:
            return None
        asked = False

        async def work(manager: Any) -> list[int]:
            nonlocal asked
            connection = manager.get_connection((await coordinators_of(manager, [id_]))[id_])
            await connection
            if connection.paused or not connection.connected:
                raise errors.NodeNotReadyError(f"the coordinator of {id_}")
            # Nothing is awaited between the look at the connection and the request: what fails before
            # this line has been asked of nobody.
            asked = True
            response = await connection.send_request(adding(self._who, self._topic, partitions))
            codes = {
                result.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for result in topic.results_by_partition
            }
            if codes != {0}:
                invalidate(manager)  # another broker may be the coordinator now
            return sorted(codes - {0}, key=lambda code: code == _NOT_ATTEMPTED)

        doing = f"adding partitions of topic {self._topic} to a transaction"
        try:
            refused = cluster(self._settings).run(doing, work, Channel.DATA)
        except AbsError as error:
            if asked or not error.retryable:
                raise
            return error
        if not refused:
            return None
        kind = errors.for_code(refused[0])
        failure = to_abs_error(kind("AddPartitionsToTxn"), doing, self._settings)
        # The epoch can be tried again, but not this request: its producer is over, as one that was idle
        # for longer than transactional.id.expiration.ms.
        is_over = isinstance(failure, ContentionError)
        if (failure.retryable and not is_over) or refused[0] == _UNKNOWN_TOPIC:
            return failure
        raise failure

    def send(self, node: int, batches: Sequence[Batch]) -> None:
        """Send batches, at most one per partition; each always gets an answer."""

        request = producing(self._who, self._topic, batches)

        async def work(manager: Any) -> None:
            try:
                response = await manager.send(request, node_id=node)
                answers = _answers(batches, response)
            except Exception as error:  # noqa: BLE001 - raised by who waits for the answer
                answers = _unanswered(batches, error, self._settings)
            for answer in answers:
                self._answers.put(answer)

        client = cluster(self._settings).client(Channel.DATA)
        self.unanswered += len(batches)
        try:
            private.begin(client, work)
        except RuntimeError as error:  # its loop has ended
            cluster(self._settings).connection(Channel.DATA).close(client)
            raise UnavailableError(
                f"Kafka's client ended while records were sent to topic {self._topic}: {error}.",
                remedy="the epoch is tried again with a new client.",
            ) from error

    def answer(self, seconds: float) -> Answer | None:
        """The next answer; None after this many seconds."""
        try:
            answer = self._answers.get(seconds > 0, max(0.0, seconds))
        except Empty:
            return None
        self.unanswered -= 1
        return answer


def adding(who: ProducerIdentity, topic: str, partitions: Sequence[int]) -> Any:
    """The request that adds partitions to a transaction."""
    asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=who.transactional_id,
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.epoch,
        v3_and_below_topics=[asked(name=topic, partitions=list(partitions), version=_ADD_VERSION)],
        max_version=_ADD_VERSION,
    )


def producing(who: ProducerIdentity, topic: str, batches: Sequence[Batch]) -> Any:
    """The request that appends batches, at most one per partition."""
    asked = ProduceRequest.TopicProduceData
    return ProduceRequest(
        transactional_id=who.transactional_id,
        acks=_ALL_REPLICAS,
        timeout_ms=_REPLICAS_MS,
        topic_data=[
            asked(
                name=topic,
                partition_data=[
                    asked.PartitionProduceData(index=batch.partition, records=batch.payload)
                    for batch in batches
                ],
            )
        ],
        max_version=_PRODUCE_VERSION,
    )


@cache
def missing_for_producer() -> str | None:
    """Why the installed kafka-python cannot send records; None if it can.

    Checked before connecting, and so before a job begins.
    """
    missing = private.missing_for_producer()
    if missing:
        return f"it has no {', '.join(missing)}"
    who = ProducerIdentity("id", 1, 0)
    try:
        adding(who, "t", [0])
        producing(who, "t", [Batch(0, 0, 1, b"")])
    except (AttributeError, TypeError, ValueError, errors.KafkaError) as error:
        return f"it makes no such requests ({type(error).__name__}: {error})"
    return None


def _answers(batches: Sequence[Batch], response: Any) -> list[Answer]:
    by_partition = {
        part.index: part for topic in response.responses for part in topic.partition_responses
    }
    answers = []
    for batch in batches:
        result = by_partition.get(batch.partition)
        if result is None:
            answers.append(Answer(batch, NO_ANSWER, "the broker did not speak of it"))
        else:
            answers.append(Answer(batch, result.error_code, result.error_message or ""))
    return answers


def _unanswered(batches: Sequence[Batch], error: Exception, who: Settings) -> list[Answer]:
    """Answers for batches whose outcome is unknown: lost connections and timeouts."""
    if isinstance(error, RuntimeError | OSError):  # kafka-python's, for one closed meanwhile
        return [Answer(batch, NO_ANSWER, str(error)) for batch in batches]
    if not isinstance(error, errors.KafkaError):
        return [Answer(batch, error=error) for batch in batches]
    mapped = to_abs_error(error, "sending records", who)
    if mapped.retryable:
        return [Answer(batch, NO_ANSWER, str(error)) for batch in batches]
    mapped.__cause__ = error
    return [Answer(batch, error=mapped) for batch in batches]
