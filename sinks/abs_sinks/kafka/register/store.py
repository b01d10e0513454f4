"""The register in Kafka: one record per job in a compacted topic, written by a fenced producer.

**Compare and set.** Opening the cell's producer fences all others and aborts their open transactions
(``Session.open_producer``). Then the partition is read to its end, the version compared, and the cell
written in a transaction, which confirms the read (``_prepare``). A producer kept open from the last
change skips the reads: another writer would have fenced it. So a change costs one transaction, plus
60 ms after a write by another process.

**Load** reads committed records up to the partition's end at the time of the call; up to an older one
where a broker answers that was stopped, and does not know yet that another leads. An open transaction
there is waited for. If it stays open, opening the cell's producer aborts it, also that of another job
in the same partition.

**After a lost reply** the cell is opened again, so that nothing older can take effect; its random
version tells whose change it holds. If that does not tell, the outcome is ``UnavailableError``.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from abs_clients.kafka import timeouts
from abs_core.codec import state_from_text, state_to_text
from abs_core.contracts import Conflict, Inventory, Stored, Version, in_time
from abs_core.crash import reached
from abs_core.errors import (
    AbsError,
    ContentionError,
    FencedError,
    NotPreparedError,
    TargetError,
    UnavailableError,
)
from abs_core.model import JobState
from abs_core.registers import check_finished, others_among
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register.session import FencedProducer, Rows, Session, session_of
from abs_sinks.kafka.register.tail import BlockedError, MissingError
from abs_sinks.kafka.register.topic import (
    PARTITIONS,
    Record,
    StoredCell,
    number_of,
    partition_of,
    records_of,
    version_after,
)

TRIES = 8
ENVELOPE = 1024
"""Bytes of a message besides key and value: envelope and batch header."""


class KafkaRegister(Inventory):
    """A ``RegisterStore`` in the topic ``registertopic``, which the first write creates."""

    option = "registertopic"

    def __init__(self, options: KafkaOptions, session: Session | None = None) -> None:
        self._options = options
        self._given = session

    @property
    def _session(self) -> Session:
        return self._given or session_of(self._options)

    def load(self, job: str) -> Stored | None:
        cell = self.load_text(job)
        return None if cell is None else self._stored(job, cell)

    def compare_and_set(
        self,
        job: str,
        expected: Version | None,
        state: JobState,
        deadline: float | None = None,
        *,
        rows: Rows | None = None,
    ) -> Version | Conflict:
        """See ``RegisterStore``; with ``rows`` in the same transaction."""
        return self.swap_text(job, expected, state_to_text(state), rows, deadline)

    def load_text(self, key: str) -> StoredCell | None:
        """The cell under a key. Raises as ``load``."""
        try:
            return self._session.tail(partition_of(key)).load(key, timeouts.OPEN_CELL_SECONDS)
        except MissingError:
            if self._session.topic_exists():
                raise  # it is being made, or the broker is starting: not known is not empty
            return None
        except BlockedError:
            with self._session.turn(key):
                return self._open(key, timeouts.CELL_TIMEOUT_MS).cell

    def swap_text(
        self,
        key: str,
        expected: Version | None,
        text: str,
        rows: Rows | None = None,
        deadline: float | None = None,
    ) -> Version | Conflict:
        """Compare and set the cell under a key, with ``rows`` in the same transaction.

        Args:
            deadline: by ``time.monotonic``; a change not committed by then is given up.

        Raises:
            AbsError: from ``rows``; nothing was changed.
            UnavailableError: the outcome is unknown.
        """
        version = version_after(expected)
        with self._session.turn(key):
            if self._is_past(key, expected):
                return Conflict()
            unsure = False
            for attempt in range(TRIES):
                time.sleep(random.uniform(0.0, 0.05 * attempt))  # noqa: S311 - jitter
                producer = self._producer(key, expected, rows)
                held = producer.version
                if held == version:
                    return version  # it took effect, although its reply was lost
                if held != expected:
                    if unsure and held is not None and number_of(held) > number_of(version):
                        break  # ours may have been there before theirs
                    return Conflict()
                in_time(key, deadline)
                if unsure and deadline is not None:
                    # Inspect the handles again before another attempt: they may expire.
                    raise UnavailableError("The register is not written yet.", job=key)
                try:
                    done = self._write(producer, key, version, text, rows, deadline)
                except NotPreparedError:
                    # A successor sweeps what it has fenced: then the register tells more.
                    if self._is_past(key, expected, look=True):
                        return Conflict()
                    raise
                if done:
                    return version
                unsure = unsure or done is None
        raise UnavailableError("The register is being written by others.", job=key)

    def jobs(self) -> Sequence[Stored]:
        """Every job in this topic, sorted by name. Raises as ``load``."""
        try:
            wait = timeouts.OPEN_PARTITION_SECONDS
            registers = [
                self._stored(job, cell)
                for partition in range(PARTITIONS)
                for job, cell in self._session.tail(partition).all(wait).items()
                if "+" not in job  # beside the registers lie ledgers (``wal``)
            ]
        except MissingError:
            if self._session.topic_exists():
                raise
            return []
        return sorted(registers, key=lambda stored: stored.state.job)

    def others_on(self, target: str, job: str) -> Sequence[str]:
        """See ``Inventory``."""
        return others_among((stored.state for stored in self.jobs()), target, job)

    def retire(self, job: str) -> bool:
        """See ``Inventory``."""
        return self.delete_text(job, lambda cell: check_finished(self._state(job, cell)))

    def delete_text(
        self, key: str, check: Callable[[StoredCell], None] = lambda cell: None
    ) -> bool:
        """Delete the cell under a key; whether there was one.

        Args:
            check: raises if it must stay; called with the fenced cell.

        Raises:
            ContentionError: it is being written, or the brokers do not answer.
        """
        with self._session.turn(key):
            if self.load_text(key) is None:
                return False
            producer = self._open(key, timeouts.CELL_TIMEOUT_MS)
            cell = producer.cell
            if cell is None:
                return False
            check(cell)
            try:
                self._prepare(producer, key, None, [(key.encode(), None), *_tombstones(cell)])
                producer.commit()
            except (FencedError, TargetError) as error:
                raise ContentionError(
                    "The job's register could not be deleted; it is being written, or Kafka did not "
                    "answer.",
                    job=key,
                    remedy="stop the job, then look whether it is still there.",
                ) from error
            return True

    def place(self, job: str) -> str:
        """Where the job's record is, for messages."""
        return (
            f"topic {self._options.registertopic}, key {job!r} at {self._options.kafka.bootstrap}"
        )

    def _is_past(self, key: str, expected: Version | None, *, look: bool = False) -> bool:
        """Whether the cell is known to be at another version; fences nobody.

        Args:
            look: read even if this process wrote the cell last; it may have been fenced since.
        """
        producer = self._session.producer(key)
        if producer is not None and producer.version == expected and not look:
            return False
        try:
            cell = self._session.tail(partition_of(key)).load(key, timeouts.OPEN_CELL_SECONDS)
        except (BlockedError, MissingError):
            return False
        return (None if cell is None else cell.version) != expected

    def _write(
        self,
        producer: FencedProducer,
        key: str,
        version: Version,
        text: str,
        rows: Rows | None,
        deadline: float | None,
    ) -> bool | None:
        """Write the cell: True; False: the producer was fenced; None: the outcome is unknown."""
        most = self._options.kafka.message_max_bytes
        limit = min(most, self._session.topic().max_message_bytes or most)
        new = records_of(key, version, text, max(limit - ENVELOPE - len(key), limit // 2))
        # First the parts of the new cell, then itself, then what it replaces: should a late request
        # end the transaction in between, the cell is as it was, or as it will be.
        names = {name for name, _ in new}
        old = [] if producer.cell is None else _tombstones(producer.cell)
        records = [*new, *((name, nothing) for name, nothing in old if name not in names)]
        try:
            self._prepare(producer, key, rows, records)
        except (FencedError, ContentionError):
            producer.usable = False
            return False
        tail = self._session.tail(partition_of(key))
        reads = tail.reads
        try:
            in_time(key, deadline)
        except UnavailableError:
            producer.give_up()
            raise
        if rows is not None and rows.point is not None:
            reached(rows.point)
        try:
            producer.commit()
        except AbsError:
            return None
        producer.cell = StoredCell(version, text, tuple(name for name, _ in new[:-1]))
        tail.wrote(records, reads)
        return True

    def _prepare(
        self, producer: FencedProducer, key: str, rows: Rows | None, records: Sequence[Record]
    ) -> None:
        """Send all records of a change in an open transaction, if the cell is what the producer holds.

        Raises:
            ContentionError: it is not; nothing was changed.
            AbsError: as ``FencedProducer.prepare``.
        """
        partition = partition_of(key)
        producer.prepare(rows, records, partition)
        if producer.has_written:
            return
        # The end up to which the cell was read may have been told by a broker that had been stopped,
        # and led the partition no longer. The leader has acknowledged these records: so what others
        # have committed lies before them, and nothing follows while this producer is not fenced.
        try:
            before = producer.begins_at(partition)
            tail = self._session.tail(partition)
            cell = tail.load(key, timeouts.OPEN_CELL_SECONDS, before)
            if (None if cell is None else cell.version) != producer.version:
                raise ContentionError("The register has changed before it was read.", job=key)
        except BaseException:
            producer.give_up()
            raise

    def _producer(self, key: str, expected: Version | None, rows: Rows | None) -> FencedProducer:
        """The open producer if it can write the cell; else a new one."""
        timeout_ms = timeouts.CELL_TIMEOUT_MS if rows is None else rows.timeout_ms
        producer = self._session.producer(key)
        if (
            producer is None
            or producer.version != expected
            or not producer.fits(self._options, timeout_ms)
        ):
            return self._open(key, timeout_ms)
        if rows is not None and not producer.may_carry_rows:
            return self._open(key, timeout_ms)
        return producer

    def _open(self, job: str, timeout_ms: int) -> FencedProducer:
        """Open the cell's producer, which fences all others, and read the cell."""
        self._session.topic()
        producer = self._session.open_producer(self._options, job, timeout_ms)
        try:
            producer.cell = self._read(job)
        except BaseException:
            producer.usable = False
            raise
        return producer

    def _read(self, job: str) -> StoredCell | None:
        """Read the cell of a topic that exists; ends transactions that block the partition."""
        begun = time.monotonic()
        tail = self._session.tail(partition_of(job))
        while True:
            try:
                return tail.load(job, timeouts.OPEN_PARTITION_SECONDS)
            except MissingError:
                # It was made just now, and the broker that was asked has not heard of it yet.
                if time.monotonic() - begun > timeouts.APPEARS_SECONDS:
                    raise
                time.sleep(0.02)
            except BlockedError:
                self._session.end_writers(partition_of(job))
                return tail.load(job, timeouts.OPEN_PARTITION_SECONDS)

    def _stored(self, job: str, cell: StoredCell) -> Stored:
        changed = None if cell.changed is None else cell.changed / 1000
        return Stored(self._state(job, cell), cell.version, changed)

    def _state(self, job: str, cell: StoredCell) -> JobState:
        where = f"topic {self._options.registertopic}, job {job!r}"
        return state_from_text(cell.text, where, job)


def _tombstones(cell: StoredCell) -> list[Record]:
    return [(key, None) for key in cell.chunks]
