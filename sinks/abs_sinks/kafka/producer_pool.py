"""A pool of a process's transactional producers of one generation, kept ready over epochs.

Initialising a producer takes 55 to 500 ms, so the pool does it in the background: after the current
writer, or during it if a writer had to wait (``HURRIED``). ``open_transaction`` says why each
transaction needs a newly initialised producer.
"""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial

from abs_clients.kafka import timeouts
from abs_clients.kafka.producer_ids import init_producer_id
from abs_clients.kafka.transactions import State, describe
from abs_core.contracts import Task
from abs_core.errors import AbsError, UnavailableError
from abs_core.model import HandleName
from abs_core.patience import Patience
from abs_sinks.kafka.open_transaction import COMMITTING, id_name
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.orphans import Claim, end_orphans
from abs_sinks.kafka.sending import TransactionalProducer, transactional_producer

HURRIED = 20
"""For this many transactions after a wait, the next producer is initialised during a write."""

log = logging.getLogger(__name__)


class Use(Enum):
    """The state of a transactional id in the pool: MAKING, READY, WRITING, PREPARED, MAKING again.

    - MAKING: a producer is initialised under it, in the pool's thread or by a writer that waits.
    - READY: the next writer takes it.
    - WRITING: a writer has it. Given up, it is MAKING with ``aborting``, until its abort is answered.
    - PREPARED: its handle is pre-committed. It is MAKING again once no decision can name the handle, or
      with ``aborting`` once a sweep aborts it; PREPARED again if that abort was not answered.
    """

    MAKING = auto()
    READY = auto()
    WRITING = auto()
    PREPARED = auto()


@dataclass(slots=True)
class PooledProducer:
    """One transactional id and its producer.

    Args:
        name: its text is the id.
        handle: pre-committed, being written or being aborted under the id.
        aborting: whether an open transaction must be aborted.
        asked: how often its abort was asked for without an answer, by this and earlier aborts.
        used: whether a transaction was begun under the id.
    """

    name: HandleName
    use: Use = Use.MAKING
    producer: TransactionalProducer | None = None
    handle: HandleName | None = None
    aborting: bool = False
    asked: int = 0
    used: bool = False


class ProducerPool:
    """The producers of one job and generation in this process. Thread-safe.

    ``written`` holds the partitions of the last transaction: a guess at those of the next one.

    Args:
        opener: initialises an id; None: as ``KafkaOptions.choice`` says.
    """

    def __init__(
        self,
        options: KafkaOptions,
        register: str,
        job: str,
        generation: int,
        *,
        opener: Callable[[str], TransactionalProducer] | None = None,
    ) -> None:
        self._options = options
        self._opener = opener or partial(
            transactional_producer,
            options,
            columnar=options.choice.columnar,
            topic=options.topic,
            two_phase=options.kafka.two_phase,
        )
        self._incarnation = secrets.token_hex(6)
        self._named = partial(id_name, register, job, generation, incarnation=self._incarnation)
        self._claim = Claim(register, job, generation, self._incarnation)
        self._slots: list[PooledProducer] = []
        self._changed = threading.Condition()
        self._work: queue.SimpleQueue[PooledProducer | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._made = 0
        self._hurried = 0
        self.written: Sequence[tuple[str, int]] = ()

    def take(self, task: Task) -> PooledProducer:
        """Take a producer for one writer, and start making the next.

        Raises:
            TargetError: no producer can be initialised.
        """
        with self._changed:
            self._recycle(task)
            self._hurried = max(0, self._hurried - 1)
            slot = self._await_ready()
            if slot is None:
                slot = self._new_slot()
                slot.use = Use.WRITING  # nobody else may take it when it is ready
        if slot.producer is None:
            self._make_now(slot, task.job)
        with self._changed:
            slot.use, slot.handle, slot.used = Use.WRITING, task.handle, True
            if not any(s.use in (Use.READY, Use.MAKING) for s in self._slots):
                self._later(self._new_slot())
            # Before the transaction begins: if this process is killed, others abort only the ids
            # that its file names.
            begun = self._claim.extend(task.epoch, self._made)
        if begun:  # once an epoch, and not while its task waits
            look = partial(end_orphans, self._options, self._claim, task)
            threading.Thread(target=look, name="abs-kafka-orphans", daemon=True).start()
        return slot

    def prepared(self, slot: PooledProducer) -> None:
        """Mark the slot's transaction as pre-committed: only commit or abort ends it now."""
        with self._changed:
            slot.use = Use.PREPARED
            self._changed.notify_all()

    def give_up(self, slot: PooledProducer) -> None:
        """Abort a transaction that was not pre-committed; wait for it, ``GIVE_UP_SECONDS`` at most."""
        # Spark kills the process of a failed task: readers would wait for the transaction's timeout.
        with self._changed:
            if slot.use is Use.WRITING:
                self._renew(slot, aborting=True)
                self._await_abort(slot, timeouts.GIVE_UP_SECONDS)

    def abort(self, handle: HandleName) -> bool:
        """Abort this pre-committed handle and wait for it; False: it is not of this process.

        The caller has made sure that no decision can name it (I4).

        Raises:
            UnavailableError: the abort is not known to be done; call again.
        """
        with self._changed:
            slot = next((s for s in self._slots if s.handle == handle), None)
            if slot is None or slot.use is Use.WRITING:
                return False
            if not slot.aborting:
                self._renew(slot, aborting=True)
            self._await_abort(slot, timeouts.INIT_SECONDS)
            if slot.handle != handle:
                return True
        raise UnavailableError(
            "The abort of a transaction that was pre-committed here is not finished yet.",
            handle=handle,
            remedy="the next sweep tries again; until then, or until the transaction's timeout, "
            "readers wait for it.",
        )

    def held(self) -> dict[HandleName, HandleName | None]:
        """The ids of this process, each with its pre-committed handle or None."""
        with self._changed:
            return {s.name: s.handle if s.use is Use.PREPARED else None for s in self._slots}

    def holds_any(self, task: Task) -> bool:
        """Whether one is being written, or a handle is pre-committed that a decision may name.

        Args:
            task: of the pool's job and generation.
        """
        with self._changed:
            return any(
                slot.use is Use.WRITING
                or (slot.handle is not None and not task.is_settled(slot.handle.epoch))
                for slot in self._slots
            )

    def close(self) -> None:
        """Drop all producers. Transactions stay as they are.

        Does not wait for the pool's thread, which ends after the request that it is waiting for.
        """
        with self._changed:
            self._closed.set()
            self._slots.clear()
            self._claim.release()
            self._changed.notify_all()
        self._work.put(None)

    def _await_abort(self, slot: PooledProducer, seconds: float) -> None:
        self._changed.wait_for(lambda: self._closed.is_set() or not slot.aborting, seconds)

    def _make_now(self, slot: PooledProducer, job: str) -> None:
        """Initialise a producer while its writer waits."""
        try:
            replace(self._options.patience, job=job).retry(lambda: self._make(slot))
        except BaseException:
            self._drop(slot)
            raise

    def _drop(self, slot: PooledProducer) -> None:
        """Drop the id; one with a transaction to abort is kept for the next ``abort`` or ``take``."""
        with self._changed:
            if slot.aborting:
                slot.use, slot.aborting = Use.PREPARED, False
            elif slot in self._slots:
                self._slots.remove(slot)
            self._changed.notify_all()

    def _recycle(self, task: Task) -> None:
        """Free the ids whose handle no decision can name any more."""
        for slot in self._slots:
            if slot.use is Use.PREPARED and slot.handle and task.is_settled(slot.handle.epoch):
                self._renew(slot)

    def _await_ready(self) -> PooledProducer | None:
        """A ready slot; waits while one is being made, and returns None if none is."""
        seconds = self._options.patience.seconds
        deadline = time.monotonic() + seconds
        while True:
            for slot in self._slots:
                if slot.use is Use.READY:
                    slot.use = Use.WRITING
                    return slot
            if not any(slot.use is Use.MAKING for slot in self._slots):
                return None
            if not self._hurried:  # else the thread knows, and those who wait would wake each other
                self._changed.notify_all()
            self._hurried = HURRIED
            if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                raise UnavailableError(
                    f"No transactional producer was initialised within {seconds:g} s."
                    " (option patience)",
                    remedy="see whether the brokers are up, and the state of __transaction_state.",
                )

    def _new_slot(self) -> PooledProducer:
        slot = PooledProducer(self._named(self._made))
        self._made += 1
        self._slots.append(slot)
        return slot

    def _renew(self, slot: PooledProducer, *, aborting: bool = False) -> None:
        """Initialise the id again, which aborts its open transaction and raises its epoch."""
        slot.use, slot.aborting = Use.MAKING, aborting
        if not aborting:
            slot.handle = None
        self._later(slot)
        self._changed.notify_all()  # an abort waits for no writer

    def _later(self, slot: PooledProducer) -> None:
        self._work.put(slot)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="abs-kafka-init", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (slot := self._work.get()) is not None:
            try:
                self._await_turn()
                if not self._closed.is_set():
                    self._make(slot)
                elif slot.aborting:
                    # A closed pool makes no producer, but readers still wait for the abort.
                    init_producer_id(self._options.kafka, str(slot.name))
            except Exception as error:
                if slot.aborting or not self._closed.is_set():
                    # What it has open ends by its timeout, or with the next run, if nobody asks.
                    trace = None if isinstance(error, AbsError) else error
                    log.warning(
                        "transactional id %s cannot be initialised: %s",
                        slot.name,
                        error,
                        exc_info=trace,
                    )
                self._drop(slot)

    def _await_turn(self) -> None:
        """Wait until nobody writes, unless a caller waits for a producer or an abort."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._closed.is_set()
                    or self._hurried > 0
                    or any(slot.aborting for slot in self._slots)
                    or not any(slot.use is Use.WRITING for slot in self._slots)
                )
            )

    def _make(self, slot: PooledProducer) -> None:
        """Initialise a producer for the slot; raises ``TargetError``."""
        slot.producer = None  # the one before is destroyed; its transaction stays open
        if slot.aborting or slot.asked:
            # librdkafka would wait a second for the abort; readers wait with it.
            self._abort_open(slot)
        if slot.used and self._options.kafka.two_phase:
            self._leave_unless_committed(slot)
        # Nobody needs a producer of a closed pool, whose thread would look for brokers for a minute.
        patience = Patience(seconds=timeouts.INIT_SECONDS)
        producer = patience.retry(partial(self._open, slot), self._closed)
        with self._changed:
            slot.producer = producer
            if slot.use is Use.MAKING:
                slot.use = Use.READY
            self._changed.notify_all()

    def _abort_open(self, slot: PooledProducer) -> None:
        """Abort the open transaction of the slot's id."""

        def ask() -> None:
            # Counted before it is sent: one without an answer may arrive late, see `_rename`.
            slot.asked += 1
            init_producer_id(self._options.kafka, str(slot.name))
            slot.asked -= 1

        Patience(seconds=timeouts.GIVE_UP_SECONDS).retry(ask)
        with self._changed:
            slot.aborting, slot.handle = False, None
            if slot.asked:
                self._rename(slot)
            self._changed.notify_all()

    def _leave_unless_committed(self, slot: PooledProducer) -> None:
        """Abort the last transaction under the id and take a new one, unless it was committed.

        The driver may abort it, too, by its id: then nothing else may be open under that.
        """
        patience = Patience(seconds=timeouts.INIT_SECONDS)
        name = str(slot.name)
        now = patience.retry(lambda: describe(self._options.kafka, [name]), self._closed)[name]
        if now is not None and now.state in COMMITTING:
            return
        if now is not None and now.state is State.ONGOING:
            self._abort_open(slot)
        with self._changed:
            self._rename(slot)

    def _open(self, slot: PooledProducer) -> TransactionalProducer:
        try:
            return self._opener(str(slot.name))
        except AbsError:
            with self._changed:
                self._rename(slot)
            raise

    def _rename(self, slot: PooledProducer) -> None:
        """Leave an id under which nothing is written any more, since it may be initialised at any time.

        An InitProducerId that was not answered may be late, not lost. It would abort what is open under
        the id when it comes, also what a decision names.
        """
        slot.name, slot.asked = self._named(self._made), 0
        slot.used = False
        self._made += 1
