"""A producer that takes records column by column: no Python object is made of any of them.

Most of what a small record costs in Python is its way through ``Producer.produce``. librdkafka has
``rd_kafka_produce_batch``, which takes an array of pointers; those are computed for whole columns, from
Arrow's buffers. The binding's own producer cannot be used with it: it learns of failures only of
messages that it made itself (``dr_msg_cb`` in its Producer.c drops the others), so a record that was
not delivered would be lost without a word. Hence a producer of librdkafka's own, with the events
interface (``rdkafka.h``, "Event interface").

It is told of failures only (``delivery.report.only.error``, which the binding can but emulate), and
librdkafka counts a failed message as queued until its report was fetched. So when ``flush`` returns 0,
every record is acknowledged, or has been reported.

Not here: headers, timestamps of the records' own, and several topics; they need the binding's producer.
"""

from __future__ import annotations

import ctypes
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from ctypes import byref, c_char_p, c_int, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from abs_core.errors import TargetError
from abs_sinks.buffers import Array, offsets_of
from abs_sinks.kafka import librdkafka as c
from abs_sinks.kafka.records import Records

MESSAGE = np.dtype(c.Message)

_FLUSH_SLICE = 0.1
"""Seconds after which a flush looks whether something has failed."""

_NOTHING = ctypes.create_string_buffer(1)
"""What a value of no bytes points to: the null pointer would make it null."""

_ONLY_BINDING = ("plugin.library.paths", "sasl.oauthbearer.")
"""Settings, or how they begin, that the binding does part of the work for."""


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A message that failed, as far as ``confluent_kafka.Message`` tells it."""

    _topic: str
    _partition: int
    _key: bytes | None
    _value: bytes | None

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value


class BulkProducer:
    """One of librdkafka's producers; not thread-safe.

    It is closed when nobody holds it any more; a transaction that is open stays open. In a fork of its
    process it is of no use, and does no harm.

    Args:
        settings: as for ``confluent_kafka.Producer``, with ``on_delivery`` and ``logger``.

    Raises:
        KafkaException: a setting is refused.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        given = dict(settings)
        self._report: Callable[[KafkaError | None, Any], None] = given.pop("on_delivery")
        self._log: logging.Logger = given.pop("logger")
        self._c = c.library()
        self._rk = _opened(self._c, given)
        self._events = self._c.rd_kafka_queue_get_main(self._rk)
        self._topics: dict[str, int] = {}
        weakref.finalize(
            self, _close, self._c, self._rk, self._events, self._topics, os.getpid()
        ).atexit = False

    def init_transactions(self, seconds: float) -> None:
        self._raise(self._c.rd_kafka_init_transactions(self._rk, _millis(seconds)))

    def begin_transaction(self) -> None:
        self._raise(self._c.rd_kafka_begin_transaction(self._rk))

    def commit_transaction(self, seconds: float) -> None:
        self._raise(self._c.rd_kafka_commit_transaction(self._rk, _millis(seconds)))

    def list_topics(self, topic: str, seconds: float) -> None:
        """Have the topic's partitions known before the first record.

        Raises:
            KafkaException: no broker answered.
        """
        found = c_void_p()
        at = self._topic(topic)
        code = self._c.rd_kafka_metadata(self._rk, 0, at, byref(found), _millis(seconds))
        if code:
            raise KafkaException(KafkaError(code))
        self._c.rd_kafka_metadata_destroy(found)

    def produce_batch(self, topic: str, messages: Array) -> int:
        """Queue messages, in their order; how many there was room for: the first so many.

        Args:
            messages: of ``messages_of``; what they point to is copied.

        Raises:
            KafkaException: one was refused for another reason than a full queue. Those after it may
                be queued: what is sent is of no use any more.
        """
        count = len(messages)
        queued: int = self._c.rd_kafka_produce_batch(
            self._topic(topic),
            c.ANY_PARTITION,
            c.COPY | c.PER_MESSAGE_PARTITION,
            messages.ctypes.data,
            count,
        )
        if queued < count:
            self._see_that_it_was_full(messages["err"], queued)
        return queued

    def poll(self, seconds: float) -> int:
        """Wait so long for events, and take note of all that are there; how many there were.

        Raises:
            KafkaException: the producer has failed for good.
        """
        fatal: KafkaError | None = None
        count = 0
        for event in self._fetched(seconds):
            count += 1
            fatal = self._take(event) or fatal
        if fatal is not None:
            raise KafkaException(fatal)
        return count

    def flush(self, seconds: float) -> int:
        """Wait so long until nothing is queued; how many messages and reports still are.

        Raises:
            KafkaException: the producer has failed for good.
        """
        deadline = time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            self._c.rd_kafka_flush(self._rk, _millis(min(_FLUSH_SLICE, left)))
            self.poll(0)
            waiting: int = self._c.rd_kafka_outq_len(self._rk)
            if not waiting or left == 0:
                return waiting

    def _topic(self, name: str) -> int:
        if name not in self._topics:
            made = self._c.rd_kafka_topic_new(self._rk, name.encode(), None)
            if not made:
                raise KafkaException(KafkaError(self._c.rd_kafka_last_error(), name))
            self._topics[name] = made
        return self._topics[name]

    def _see_that_it_was_full(self, errors: Array, queued: int) -> None:
        """``rd_kafka_produce_batch`` takes none after the first that finds no room (rdkafka_msg.c).

        After any other error it goes on, and what follows is queued: order and number are lost.
        """
        refused = errors[errors != 0]
        others = refused[refused != KafkaError._QUEUE_FULL]
        if len(others):
            code = int(others[0])
            raise KafkaException(KafkaError(code))
        if errors[:queued].any() or not errors[queued:].all():
            raise TargetError(
                "librdkafka has queued records behind one that it had no room for.",
                remedy="nothing of the epoch is committed. Please report it, with its version.",
            )

    def _fetched(self, seconds: float) -> Iterator[int]:
        wait = _millis(seconds)
        while event := self._c.rd_kafka_queue_poll(self._events, wait):
            wait = 0
            try:
                yield event
            finally:
                self._c.rd_kafka_event_destroy(event)

    def _take(self, event: int) -> KafkaError | None:
        """The error, where this is the end of the producer."""
        kind = self._c.rd_kafka_event_type(event)
        if kind == c.DELIVERY:
            while message := self._c.rd_kafka_event_message_next(event):
                failed = message.contents
                self._report(self._error(failed.err), self._undelivered(failed))
        elif kind == c.LOG:
            self._pass_on(event)
        elif kind == c.ERROR and self._c.rd_kafka_event_error_is_fatal(event):
            text = self._c.rd_kafka_event_error_string(event).decode(errors="replace")
            return KafkaError(self._c.rd_kafka_event_error(event), text, True)
        return None  # other errors pass: librdkafka tries again by itself

    def _error(self, code: int) -> KafkaError | None:
        return KafkaError(code) if code else None

    def _undelivered(self, failed: c.Message) -> Undelivered:
        return Undelivered(
            self._c.rd_kafka_topic_name(failed.rkt).decode(),
            failed.partition,
            ctypes.string_at(failed.key, failed.key_len) if failed.key else None,
            ctypes.string_at(failed.payload, failed.len) if failed.payload else None,
        )

    def _pass_on(self, event: int) -> None:
        source, text, level = c_char_p(), c_char_p(), c_int()
        self._c.rd_kafka_event_log(event, byref(source), byref(text), byref(level))
        said = [(part.value or b"").decode(errors="replace") for part in (source, text)]
        self._log.log(_LEVELS.get(level.value, logging.DEBUG), "%s: %s", *said)

    def _raise(self, error: int | None) -> None:
        """Raise what a call has returned, if it has failed."""
        if error is None:
            return
        try:
            found = KafkaError(
                self._c.rd_kafka_error_code(error),
                self._c.rd_kafka_error_string(error).decode(errors="replace"),
                bool(self._c.rd_kafka_error_is_fatal(error)),
                bool(self._c.rd_kafka_error_is_retriable(error)),
                bool(self._c.rd_kafka_error_txn_requires_abort(error)),
            )
        finally:
            self._c.rd_kafka_error_destroy(error)
        raise KafkaException(found)


AnyProducer = Producer | BulkProducer


def open_producer(settings: Mapping[str, Any], *, in_bulk: bool) -> AnyProducer:
    """A producer that takes records in bulk, where that is asked for and possible; else the binding's.

    Args:
        settings: of ``client.producer_settings``.

    Raises:
        KafkaException: a setting is refused.
    """
    if (
        in_bulk
        and c.library() is not None
        and not any(n.startswith(_ONLY_BINDING) for n in settings)
    ):
        return BulkProducer(settings)
    return Producer(dict(settings))


def messages_of(records: Records) -> Array:
    """What librdkafka takes, of records without headers and timestamps; valid as long as they live.

    Null keys and values are null, empty ones are empty. The partition is -1 where the key decides.
    """
    found = np.zeros(records.rows, MESSAGE)
    found["payload"], found["len"] = _places(records.values)
    if records.keys is not None:
        found["key"], found["key_len"] = _places(records.keys)
    if records.partitions is None:
        found["partition"] = c.ANY_PARTITION
    else:
        found["partition"] = records.partitions.fill_null(c.ANY_PARTITION).to_numpy()
    return found


def _places(column: pa.BinaryArray) -> tuple[Array, Array]:
    """Address and length of each value; address 0 is null."""
    ends = offsets_of(column).astype(np.uintp)
    data = column.buffers()[2]
    first = data.address if data is not None and data.address else ctypes.addressof(_NOTHING)
    starts, lengths = ends[:-1] + np.uintp(first), np.diff(ends)
    if column.null_count:
        starts[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return starts, lengths


def _opened(lib: Any, settings: Mapping[str, Any]) -> int:
    conf = lib.rd_kafka_conf_new()
    text = ctypes.create_string_buffer(c.TEXT_BYTES)
    try:
        for name, value in {**_OURS, **settings}.items():
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            done = lib.rd_kafka_conf_set(conf, name.encode(), shown.encode(), text, len(text))
            if done != c.CONF_OK:
                raise KafkaException(KafkaError(KafkaError._INVALID_ARG, text.value.decode()))
        lib.rd_kafka_conf_set_events(conf, c.DELIVERY | c.ERROR | c.LOG)
        rk: int | None = lib.rd_kafka_new(c.PRODUCER, conf, text, len(text))
        if rk is None:
            code = lib.rd_kafka_last_error() or KafkaError._INVALID_ARG
            raise KafkaException(
                KafkaError(code, f"Failed to create producer: {text.value.decode()}")
            )
    except BaseException:
        lib.rd_kafka_conf_destroy(conf)
        raise
    lib.rd_kafka_set_log_queue(rk, None)  # logs come as events, too
    return rk


def _close(lib: Any, rk: int, events: int, topics: Mapping[str, int], process: int) -> None:
    if os.getpid() != process:
        return  # librdkafka's threads are not in a fork: this would wait for them for ever
    for topic in topics.values():
        lib.rd_kafka_topic_destroy(topic)
    lib.rd_kafka_queue_destroy(events)
    lib.rd_kafka_destroy(rk)


def _millis(seconds: float) -> int:
    return max(0, round(seconds * 1000))


_OURS = {"log.queue": "true"}
_LEVELS = {
    **dict.fromkeys(range(3), logging.CRITICAL),
    3: logging.ERROR,
    4: logging.WARNING,
    5: logging.INFO,
    6: logging.INFO,
}
"""Of syslog's, as librdkafka has them; 7 is for debugging."""
