"""Sends records one by one, by confluent-kafka's ``produce`` (``sending`` has the contract)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import repeat
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from abs_clients.kafka import timeouts
from abs_clients.kafka.codes import CONSEQUENCES
from abs_clients.kafka.configs import producer_settings
from abs_clients.kafka.errors import reason_of, to_abs_error, translate_errors
from abs_clients.kafka.settings import Settings
from abs_core.errors import UnavailableError
from abs_sinks.kafka.headers import Header
from abs_sinks.kafka.records import Records, header_lists, slices

CHUNK = 16_384
"""Records queued at a time; earlier failures are checked after each chunk."""

log = logging.getLogger(__name__)


class LibrdkafkaSender:
    """A ``RecordSender`` over one producer.

    Args:
        producer: its ``on_delivery`` is ``failures.report``.
        topic: of all records; None: each names its own.
        patience: seconds to wait for room in the queue or for acknowledgements.
        more: headers added to each record.
    """

    def __init__(
        self,
        producer: Producer,
        failures: Failures,
        topic: str | None,
        patience: float,
        more: Sequence[Header] = (),
    ) -> None:
        self._more = list(more)
        self.rows = 0
        self._producer = producer
        self._failures = failures
        self._topic = topic
        self._patience = patience

    def send(self, records: Records) -> None:
        for part in slices(records, CHUNK):
            self._produce(part)
            self._failures.raise_any(self._producer)
        self.rows += records.rows

    def flush(self) -> None:
        deadline = time.monotonic() + self._patience
        while (left := self._serve(self._producer.flush, 1.0)) and time.monotonic() < deadline:
            pass
        if left:
            raise UnavailableError(
                f"{left} records are not acknowledged after {self._patience:g} s.",
                remedy="see whether the brokers are up and in sync; the epoch is tried again.",
            )

    def abort(self) -> None:
        self._producer.purge(in_queue=True, in_flight=False, blocking=False)

    def _produce(self, records: Records) -> None:
        with self._failures.named(self._producer, "queueing records"):
            produce: Any = self._producer.produce
            for row in _rows(records, self._topic, self._more):
                try:
                    produce(*row)
                except BufferError:
                    self._when_there_is_room(produce, row)

    def _when_there_is_room(self, produce: Any, row: tuple[Any, ...]) -> None:
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            self._serve(self._producer.poll, timeouts.FULL_PAUSE)
            with suppress(BufferError):
                produce(*row)
                return
        raise UnavailableError(
            f"The queue has been full for {self._patience:g} s: the brokers take no records.",
            remedy="see whether the brokers are up and in sync; the epoch is tried again.",
        )

    def _serve(self, call: Callable[[float], int], seconds: float) -> int:
        """Run ``call(seconds)``, then raise any delivery failure or fatal error of the producer."""
        doing = "waiting for acknowledgements"
        with self._failures.named(self._producer, doing):
            number = call(seconds)
        self._failures.raise_any(self._producer)
        return number


class LibrdkafkaProducer:
    """A transactional producer of librdkafka, with connections of its own.

    Opening it fences older ones, and aborts their open transactions. librdkafka repeats EndTxn silently
    when a connection breaks or a reply is late: see ``may_end_late``.

    Args, Raises: as ``sending.transactional_producer``; ``timeout_ms`` is of each record, too.
    """

    def __init__(
        self,
        settings: Settings,
        name: str,
        topic: str | None,
        patience: float,
        timeout_ms: int | None = None,
    ) -> None:
        self.may_end_late = False  # there is no transaction before the first
        self._failures = Failures(settings)
        # Its callback must not refer to this object: only the garbage collector would close the client.
        of_producer = producer_settings(settings, name, self._failures.report, patience)
        # Metrics cost two requests per client, which lives for an epoch.
        config = {"enable.metrics.push": "false", **of_producer}
        if timeout_ms is not None:
            config.pop("delivery.timeout.ms", None)  # another name of message.timeout.ms
            config |= dict.fromkeys(
                ("transaction.timeout.ms", "message.timeout.ms"), str(timeout_ms)
            )
        with translate_errors(f"initialising transactional id {name}", settings):
            self._producer = Producer(config)
            try:
                self._producer.init_transactions(timeouts.INIT_SECONDS)
            except BaseException:
                del self._producer  # whoever keeps the error would keep the client open
                raise
            if topic is not None:
                self._acquaint(topic)

    def begin(self) -> None:
        self.may_end_late = True
        self._failures.clear()
        with self._failures.named(self._producer, "beginning a transaction"):
            self._producer.begin_transaction()

    def to(self, topic: str | None, patience: float) -> LibrdkafkaSender:
        return LibrdkafkaSender(self._producer, self._failures, topic, patience)

    def commit(self) -> None:
        with self._failures.named(self._producer, "committing a transaction"):
            self._producer.commit_transaction(timeouts.END_SECONDS)

    def abort(self) -> bool:
        try:
            self._producer.abort_transaction(timeouts.END_SECONDS)
        except KafkaException as error:  # fenced, most likely: then it is aborted already
            log.debug("aborting a transaction: %s", error)
            return False
        return True

    def _acquaint(self, topic: str) -> None:
        """Read the topic's metadata ahead; a failure is left to ``send``, which reads it again."""
        try:
            self._producer.list_topics(topic, timeouts.INIT_SECONDS)
        except KafkaException as error:
            log.debug("looking at topic %s ahead of its records: %s", topic, error)


def outside_transactions(
    settings: Settings, topic: str | None, patience: float, more: Sequence[Header]
) -> LibrdkafkaSender:
    """A sender with an idempotent producer of its own; ``TargetError`` if it cannot be opened."""
    failures = Failures(settings)
    with translate_errors("opening a producer", settings):
        producer = Producer(producer_settings(settings, None, failures.report, patience))
    return LibrdkafkaSender(producer, failures, topic, patience, more)


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
        _given(partitions, -1),
        repeat(None),  # callback and on_delivery: the producer's own is called
        repeat(None),
        _given(timestamps, 0),
        _all_headers(records.headers, extra),
        strict=False,
    )


def _given(column: pa.Array | None, otherwise: int) -> Iterable[int]:
    if column is None:
        return repeat(otherwise)
    # fill_null imports pandas (``records.single``).
    return (column.fill_null(otherwise) if column.null_count else column).to_pylist()  # type: ignore[no-any-return]


def _all_headers(headers: pa.ListArray | None, extra: list[Header]) -> Any:
    if headers is None:
        return repeat(extra or None)
    own = header_lists(headers)
    return [(headers_or_none or []) + extra for headers_or_none in own] if extra else own


_SHOWN_KEY = 40


class Failures:
    """Undelivered records, with their original reason; ``report`` is the producer's ``on_delivery``.

    A refused record is named by topic, partition, key and size: its text could be secret. Only the
    first is kept. A producer that fails for good drops its records, and reports "purged" for them,
    which is never the reason.

    Args:
        who: settings of the producer; errors name its principal.
    """

    def __init__(self, who: Settings | None = None) -> None:
        self._who = who
        self.clear()

    def clear(self) -> None:
        """Forget what was reported: another transaction begins."""
        self.count = 0
        self._first: tuple[KafkaError, str] | None = None
        self._fatal: KafkaError | None = None

    def report(self, error: KafkaError | None, message: Message) -> None:
        """Note a failed record; called by librdkafka from ``poll`` and ``flush``."""
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
        """Raise the project's error for the first undelivered record, if any.

        ``producer`` is asked for the reason if only its consequence was reported.
        """
        if self._first is None:
            return
        error, named = self._first
        if _is_consequence(error):
            error = self._fatal or reason_of(producer) or error
        failure = to_abs_error(error, f"delivering {named}", self._who)
        if self.count > 1:
            failure.what += f" {self.count} records were not delivered; this is the first."
        raise failure

    @contextmanager
    def named(self, producer: Producer, doing: str) -> Iterator[None]:
        """``translate_errors`` around calls of the producer, with the original reason."""
        with translate_errors(doing, self._who):
            try:
                yield
            except KafkaException as error:
                self.raise_any(producer)
                reason = error.args[0]
                if _is_consequence(reason):
                    reason = self._fatal or reason_of(producer) or reason
                raise to_abs_error(reason, doing, self._who) from error
            except SystemError as error:  # see ``report``
                self.raise_any(producer)
                reason = _cause(error) or self._fatal or reason_of(producer)
                if reason is not None:
                    raise to_abs_error(reason, doing, self._who) from error
                raise UnavailableError(
                    f"The Kafka client failed while {doing}, and cannot be used again.",
                    remedy="the job tries again with a new client.",
                ) from error


def _is_consequence(error: KafkaError) -> bool:
    return error.code() in CONSEQUENCES


def _cause(error: SystemError) -> KafkaError | None:
    """The binding's exception behind one of ours."""
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
