"""Delivery failures of librdkafka, with their original reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from abs_clients.kafka.codes import CONSEQUENCES
from abs_clients.kafka.errors import reason_of, to_abs_error, translate_errors
from abs_clients.kafka.settings import Settings
from abs_core.errors import UnavailableError

_SHOWN_KEY = 40


class Failures:
    """Undelivered records; ``report`` is the producer's ``on_delivery``.

    A refused record is named by topic, partition, key and size: its text could be secret. Only the
    first is kept. A producer that fails for good drops its records, and reports "purged" for them,
    which is never the reason.

    Args:
        who: settings of the producer; errors name its principal.
    """

    def __init__(self, who: Settings | None = None) -> None:
        self._who = who
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
        found = to_abs_error(error, f"delivering {named}", self._who)
        if self.count > 1:
            found.what += f" {self.count} records were not delivered; this is the first."
        raise found

    @contextmanager
    def named(self, producer: Producer, doing: str) -> Iterator[None]:
        """``translate_errors`` around calls of the producer, with the original reason."""
        with translate_errors(doing, self._who):
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
