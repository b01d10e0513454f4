"""Gives records to confluent-kafka's ``produce``, and knows of every one that was not delivered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from abs_clients.kafka.codes import CONSEQUENCES
from abs_clients.kafka.errors import reason_of, to_abs_error, translate_errors
from abs_clients.kafka.settings import Settings
from abs_core.errors import UnavailableError
from abs_sinks.kafka.digest import Digest
from abs_sinks.kafka.records import Header, Records, header_lists, sliced

CHUNK = 16_384
"""Records that are queued at a time; failures of those before are looked for in between."""

_FULL_PAUSE = 0.02
"""Seconds to wait for room in a full queue before it is tried again."""

_SHOWN_KEY = 40


class Failures:
    """What was not delivered; ``report`` is the producer's ``on_delivery``.

    A record that was refused is named by topic, partition, key and size: its own text could be a
    secret. Only the first is kept. When a producer fails for good it throws away what it still has: of
    these records "purged" is reported, which is never the reason.

    Args:
        who: settings of the producer; errors name its principal.
    """

    def __init__(self, who: Settings | None = None) -> None:
        self._who = who
        self.count = 0
        self._first: tuple[KafkaError, str] | None = None
        self._fatal: KafkaError | None = None

    def report(self, error: KafkaError | None, message: Message) -> None:
        """Take note of a failed record; called by librdkafka from ``poll`` and ``flush``."""
        if error is None:
            return
        self.count += 1
        try:
            named = _named(message)
        except SystemError as met:
            # The binding calls back although an exception of its own is set, that of a fatal error;
            # the first call in here meets it, and takes it away from who called poll or flush.
            self._fatal = _cause(met) or self._fatal
            named = "a record"
        if self._first is None or _is_consequence(self._first[0]) > _is_consequence(error):
            self._first = error, named

    def raise_any(self, producer: Producer) -> None:
        """Raise why the first record was not delivered, if one was not.

        Args:
            producer: whose they are; asked for the reason where only what followed it was reported.

        Raises:
            AbsError: by the broker's reason.
        """
        if self._first is None:
            return
        error, named = self._first
        if _is_consequence(error):
            error = self._fatal or reason_of(producer) or error
        found = to_abs_error(error, f"delivering {named}", self._who)
        if self.count > 1:
            found.what += f" {self.count} records were not delivered; this is the first."
        raise found

    @contextmanager
    def named(self, producer: Producer, doing: str) -> Iterator[None]:
        """``translate_errors`` around calls of the producer: names what failed, not what followed."""
        try:
            yield
        except KafkaException as error:
            self.raise_any(producer)
            found = error.args[0]
            if _is_consequence(found):
                found = self._fatal or reason_of(producer) or found
            raise to_abs_error(found, doing, self._who) from error
        except SystemError as error:  # see ``report``
            self.raise_any(producer)
            found = _cause(error) or self._fatal or reason_of(producer)
            if found is not None:
                raise to_abs_error(found, doing, self._who) from error
            raise UnavailableError(
                f"The Kafka client failed for good while {doing}.",
                remedy="it is tried again, with a new one.",
            ) from error


class Sender:
    """Sends records over one producer; not thread-safe.

    Args:
        producer: made with ``failures.report`` as its ``on_delivery``.
        topic: of all records; None: each names its own.
        patience: seconds to wait for room in the queue or for acknowledgements.
    """

    def __init__(
        self, producer: Producer, failures: Failures, topic: str | None, patience: float
    ) -> None:
        self.rows = 0
        self._producer = producer
        self._failures = failures
        self._topic = topic
        self._patience = patience
        self._digest = Digest()

    @property
    def digest(self) -> str:
        """Of keys and values, in the order in which they were sent."""
        return self._digest.text

    def send(self, records: Records, extra: Sequence[Header] = ()) -> None:
        """Queue the records; returns before they are delivered.

        Args:
            extra: headers that each record gets besides its own.

        Raises:
            AbsError: a record cannot be queued, or one before was not delivered.
        """
        self._digest.feed(records)
        for start in range(0, records.rows, CHUNK):
            part = records if records.rows <= CHUNK else sliced(records, start, CHUNK)
            self._produce(part, list(extra))
            self._failures.raise_any(self._producer)
        self.rows += records.rows

    def flush(self) -> None:
        """Return when every record is acknowledged.

        Raises:
            AbsError: one was not delivered, or the brokers did not answer in time.
        """
        deadline = time.monotonic() + self._patience
        while (left := self._serve(self._producer.flush, 1.0)) and time.monotonic() < deadline:
            pass
        if left:
            raise UnavailableError(
                f"{left} records are not acknowledged after {self._patience:g} s.",
                remedy="see whether the brokers are up and in sync; the epoch is tried again.",
            )

    def _produce(self, records: Records, extra: list[Header]) -> None:
        with self._failures.named(self._producer, "queueing records"):
            produce: Any = self._producer.produce
            for row in _rows(records, self._topic, extra):
                try:
                    produce(*row)
                except BufferError:
                    self._when_there_is_room(produce, row)

    def _when_there_is_room(self, produce: Any, row: tuple[Any, ...]) -> None:
        deadline = time.monotonic() + self._patience
        while True:
            self._await_room(deadline)
            try:
                produce(*row)
            except BufferError:
                continue
            return

    def _await_room(self, deadline: float) -> None:
        if time.monotonic() >= deadline:
            raise UnavailableError(
                f"The queue has been full for {self._patience:g} s: the brokers take no records.",
                remedy="see whether the brokers are up and in sync; the epoch is tried again.",
            )
        self._serve(self._producer.poll, _FULL_PAUSE)

    def _serve(self, call: Callable[[float], int], seconds: float) -> int:
        """Let librdkafka report for so long; what the call returns.

        Raises:
            AbsError: a record was not delivered, or the producer failed for good.
        """
        doing = "waiting for acknowledgements"
        with translate_errors(doing), self._failures.named(self._producer, doing):
            found = call(seconds)
        self._failures.raise_any(self._producer)
        return found


def _rows(records: Records, topic: str | None, extra: list[Header]) -> Iterator[tuple[Any, ...]]:
    """The arguments of ``produce``, record by record; -1: any partition, 0: now."""
    topics = repeat(topic or "") if records.topics is None else records.topics.to_pylist()
    keys = repeat(None) if records.keys is None else records.keys.to_pylist()
    partitions, timestamps = records.partitions, records.timestamps
    if partitions is None and timestamps is None and records.headers is None and not extra:
        return zip(topics, records.values.to_pylist(), keys, strict=False)  # the most common
    return zip(
        topics,
        records.values.to_pylist(),
        keys,
        repeat(-1) if partitions is None else partitions.fill_null(-1).to_pylist(),
        repeat(None),  # callback and on_delivery: the producer's own is called
        repeat(None),
        repeat(0) if timestamps is None else timestamps.fill_null(0).to_pylist(),
        _all_headers(records.headers, extra),
        strict=False,
    )


def _all_headers(headers: pa.ListArray | None, extra: list[Header]) -> Any:
    if headers is None:
        return repeat(extra or None)
    own = header_lists(headers)
    return [(given or []) + extra for given in own] if extra else own


def _is_consequence(error: KafkaError) -> bool:
    return error.code() in CONSEQUENCES


def _cause(error: SystemError) -> KafkaError | None:
    """The binding's own exception, that one of ours has met."""
    met = error.__cause__
    return met.args[0] if isinstance(met, KafkaException) else None


def _named(message: Message) -> str:
    key = message.key()
    shown = "without a key" if key is None else f"with key {key[:_SHOWN_KEY]!r}"
    size = len(message.value() or b"") + len(key or b"")
    partition = message.partition()
    where = (
        message.topic() if partition is None or partition < 0 else f"{message.topic()}-{partition}"
    )
    return f"a record {shown} of {size} bytes to {where}"
