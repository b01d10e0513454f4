"""The one producer that may write a job's cell: whoever opens it last fences all before it.

Its transactional id is the cell's (``abs-register.<topic>.<job>``), so the broker itself keeps two
coordinators from writing one cell (KIP-98): a transaction of a fenced producer cannot be committed,
however late its requests come. As long as a producer is not fenced, nobody else has written the cell:
what it wrote last is what the cell holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import KafkaException, Producer

from abs_clients.kafka.configs import producer_settings
from abs_clients.kafka.errors import translate_errors
from abs_core.errors import UnavailableError
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register_cells import Cell, Record
from abs_sinks.kafka.sending import Failures

SHORT_TIMEOUT_MS = 10_000
"""For a transaction of nothing but a cell: should its process die, others wait no longer."""

REPLY_SECONDS = 30.0

Rows = Callable[[Producer, Failures], None]
"""Sends records into an open transaction, and returns when each is acknowledged."""


class FencedProducer:
    """Opening it fences older ones, and aborts what they left open. Not thread-safe.

    ``cell`` is what the cell holds as long as this producer is not fenced; ``next`` what it will hold
    after ``commit``.

    Args:
        timeout_ms: after which the broker aborts a transaction on its own.

    Raises:
        TargetError: it could not be opened.
    """

    def __init__(self, options: KafkaOptions, job: str, timeout_ms: int) -> None:
        self.cell: Cell | None = None
        self.next: Cell | None = None
        self.timeout_ms = timeout_ms
        self.usable = True
        self._topic = options.registertopic
        self._doing = f"writing the register of job {job}"
        self._settings = options.kafka
        self._failures = Failures(options.kafka)
        name = register_id(options.registertopic, job)
        settings = producer_settings(options.kafka, name, self._report, options.patience.seconds)
        for alias in ("message.timeout.ms", "delivery.timeout.ms"):
            settings.pop(alias, None)
        settings["transaction.timeout.ms"] = str(timeout_ms)
        settings["message.timeout.ms"] = str(timeout_ms)
        with translate_errors(
            f"opening the register of job {job}, transactional id {name}", options.kafka
        ):
            self._producer = Producer(settings)
            self._producer.init_transactions(REPLY_SECONDS)

    def prepare(self, rows: Rows | None, records: Sequence[Record], partition: int) -> None:
        """Begin a transaction, and have the broker hold all of it: ``rows``, then ``records``.

        The cell comes last: readers of its partition wait from its first record to the commit.

        Raises:
            AbsError: something is not held. The transaction is aborted, and nothing was changed.
        """
        self._failures = Failures(self._settings)
        try:
            with self._named():
                self._producer.begin_transaction()
            if rows is not None:
                with self._named():
                    rows(self._producer, self._failures)
            for key, value in records:
                with self._named():
                    self._producer.produce(self._topic, value, key, partition)
                    self._flush()  # one by one: several could make a batch that is too large
        except BaseException:
            self.give_up()
            raise

    def commit(self) -> None:
        """Commit what was prepared.

        Raises:
            TargetError: it may be committed, or not; this producer can be used no more.
        """
        try:
            with self._named():
                self._producer.commit_transaction(REPLY_SECONDS)
        except BaseException:
            self.usable = False
            raise
        self.cell = self.next

    def give_up(self) -> None:
        """Abort what was prepared, at best effort; never raises."""
        self.usable = False
        with suppress(KafkaException):  # fenced, most likely: then it is aborted already
            self._producer.abort_transaction(REPLY_SECONDS)
            self.usable = True

    def _flush(self) -> None:
        left = self._producer.flush(self.timeout_ms / 1000)
        self._failures.raise_any(self._producer)
        if left:
            raise UnavailableError(f"Kafka did not answer in time while {self._doing}.")

    @contextmanager
    def _named(self) -> Iterator[None]:
        with (
            translate_errors(self._doing, self._settings),
            self._failures.named(self._producer, self._doing),
        ):
            yield

    def _report(self, error: Any, message: Any) -> None:
        self._failures.report(error, message)


def register_id(topic: str, job: str) -> str:
    """The transactional id of a job's cell."""
    return f"abs-register.{topic}.{job}"
