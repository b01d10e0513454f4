"""Protocol wal with a register elsewhere: an epoch is sent once before it is decided, and aborted.

The brokers check records only when they are sent: their time, size, topic, policies and rights. A
decision cannot be taken back, so records that they refuse must be known before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from abs_core.errors import ContentionError, FencedError, RowError
from abs_core.model import Committable
from abs_core.wal import SegmentStore, read_segment
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.records import Records, records_in, slices
from abs_sinks.kafka.register.session import register_id
from abs_sinks.kafka.sending import TransactionalProducer, sender_in, transactional_producer

Send = Callable[[TransactionalProducer], None]
"""Sends records in an open transaction, and waits for their acknowledgement."""


class Rehearsal:
    """Sends segments of one job in a transaction that is aborted.

    Args:
        sending: what sends these segments.
    """

    def __init__(
        self,
        options: KafkaOptions,
        store: SegmentStore,
        job: str,
        sending: Callable[[Sequence[Committable]], Send],
    ) -> None:
        self._options = options
        self._store = store
        # An id of its own: to fence the ledger's producer would disturb a commit under way.
        self._name = register_id(options.registertopic, rehearsal_key(job))
        self._sending = sending

    def run(self, committables: Sequence[Committable]) -> None:
        """Return if the brokers accept every record.

        Raises:
            RowError: they refuse one; it is named by its task's handle and row.
            AbsError: they refuse all, or do not answer.
        """
        try:
            self._aborted(self._sending(committables))
        except RowError as error:
            raise self._named(committables) or error from error

    def _aborted(self, send: Send) -> None:
        transactions = transactional_producer(
            self._options,
            self._name,
            columnar=self._options.choice.columnar,
            topic=self._options.topic,
            timeout_ms=self._options.kafka.transaction_timeout_ms,
        )
        try:
            transactions.begin()
            send(transactions)
        except FencedError as error:
            # A driver that was replaced rehearses, too. The decision tells which of them may go on.
            raise ContentionError(
                f"Another driver of the job sends under {self._name}.",
                remedy="nothing of the epoch is lost: it is tried again.",
            ) from error
        finally:
            transactions.abort()

    def _named(self, committables: Sequence[Committable]) -> RowError | None:
        """The error for the first refused row, found by halves; None if all are accepted now."""
        for committable in committables:
            try:
                self._aborted(self._sending([committable]))
            except RowError:
                first = 0
                for batch in read_segment(self._store, committable):
                    records = records_in(batch, self._options.topic)
                    if self._refusal(records) is not None:
                        return self._row(records, first, committable)
                    first += records.rows
        return None

    def _row(self, records: Records, first: int, committable: Committable) -> RowError | None:
        while records.rows > 1:
            half = (records.rows + 1) // 2
            left, right = slices(records, half)
            if self._refusal(left) is not None:
                records = left
            else:
                records, first = right, first + half
        refusal = self._refusal(records)
        return refusal and RowError(
            f"Row {first} of the task is refused: {refusal.what} Nothing is decided, and no target "
            "has a row of the epoch.",
            handle=committable.handle,
            remedy=refusal.remedy,
        )

    def _refusal(self, records: Records) -> RowError | None:
        def send(transactions: TransactionalProducer) -> None:
            sender = sender_in(transactions, self._options, self._options.patience.seconds)
            sender.send(records)
            sender.flush()

        try:
            self._aborted(send)
        except RowError as error:
            return error
        return None


def rehearsal_key(job: str) -> str:
    """Names the transactional id of its rehearsals; no job's key has a plus sign."""
    return f"{job}+rehearsal"
