"""Savepoints: checkpoints that are kept complete, in a store of their own.

Each request gets exactly one answer: its checkpoint's number once that is decided and complete in
the store, or an error. A failed one is not retried: the caller may have other plans by then. The
record goes into the store after the decision: what is complete there is decided.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from threading import Lock

from abs_core.barriers.elements import Copy, TaskId
from abs_core.errors import ConfigError, UnavailableError
from abs_embedded.checkpoint_coordinator import Companion
from abs_embedded.recovery import StoreKeeper
from abs_embedded.snapshot import DurablePart, by_operator, persist
from abs_embedded.state.contracts import SnapshotStore, StateOwner


@dataclass(frozen=True, slots=True)
class _Begun:
    """A checkpoint that becomes a savepoint: its requests, and its complete parts."""

    requests: list[Future[int]]
    parts: dict[TaskId, DurablePart] = field(default_factory=dict)


class Savepoints(Companion):
    """The savepoints of one run. ``ask`` is thread-safe.

    Args:
        job: for the errors.
        keeper: has the completion record of what is decided.
    """

    def __init__(self, job: str, store: SnapshotStore, keeper: StoreKeeper) -> None:
        self._job, self._store, self._keeper = job, store, keeper
        self._lock = Lock()
        self._closed = False
        self._asked: list[Future[int]] = []
        self._begun: dict[int, _Begun] = {}

    def ask(self) -> Future[int]:
        """Request one, see ``Job.ask_savepoint``; raises ConfigError if the run is over."""
        request = Future[int]()
        with self._lock:
            if self._closed:
                raise ConfigError(
                    "A savepoint needs a running job, and this one has ended.",
                    remedy="start the job again, and ask again.",
                )
            self._asked.append(request)
        return request

    def asks(self) -> bool:
        return any(not request.cancelled() for request in self._asked)

    def begin(self, checkpoint: int) -> None:
        """This checkpoint serves all present requests."""
        with self._lock:
            asked, self._asked = self._asked, []
        wanted = [request for request in asked if request.set_running_or_notify_cancel()]
        if wanted:
            self._begun[checkpoint] = _Begun(wanted)

    def copied(self, copy: Copy, place: StateOwner) -> None:
        begun = self._begun.get(copy.checkpoint)
        if begun is not None:
            begun.parts[copy.task] = persist(copy, self._store, place, whole=True)

    def decided(self, checkpoint: int) -> None:
        begun = self._begun.get(checkpoint)
        if begun is None:
            return
        try:
            record = replace(self._keeper.written, operators=by_operator(begun.parts))
            self._store.complete(checkpoint, record.to_bytes(), record.blobs)
        except Exception as error:  # noqa: BLE001 - stores may be anybody's
            self.failed(checkpoint, f"its record was not written, {error}")
            return
        for request in self._begun.pop(checkpoint).requests:
            request.set_result(checkpoint)

    def failed(self, checkpoint: int, why: str, remedy: str = "ask again.") -> None:
        begun = self._begun.pop(checkpoint, None)
        for request in () if begun is None else begun.requests:
            sentence = f"Savepoint {checkpoint} was not taken, because {why}"
            request.set_exception(
                UnavailableError(sentence, job=self._job, epoch=checkpoint, remedy=remedy)
            )

    def __enter__(self) -> Savepoints:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Answer all open requests: the run is over."""
        with self._lock:
            self._closed = True
        remedy = "start the job again, and ask again."
        why = "the job has ended." if error is None else f"the job failed: {error!r}"
        for checkpoint in tuple(self._begun):
            self.failed(checkpoint, why, remedy)
        for request in self._asked:
            if request.set_running_or_notify_cancel():
                sentence = f"A savepoint was requested, but not started: {why}"
                request.set_exception(UnavailableError(sentence, job=self._job, remedy=remedy))
