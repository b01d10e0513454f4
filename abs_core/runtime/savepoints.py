"""Requests of savepoints: from who asks, by the checkpoint that is to be one, to the answer.

Each request has exactly one answer: the number of its checkpoint once that is decided, or an error. A
request whose checkpoint fails is not tried again by itself: who asked may have other plans by then.
"""

from __future__ import annotations

from concurrent.futures import Future
from threading import Lock
from types import TracebackType

from abs_core.errors import ConfigError, UnavailableError


class Savepoints:
    """Of one run of a job, open while it runs. ``ask`` is for any thread, the rest for the run's.

    Args:
        job: for the errors.
    """

    def __init__(self, job: str | None = None) -> None:
        self._job = job
        self._lock = Lock()
        self._closed = False
        self._asked: list[Future[int]] = []
        self._begun: dict[int, list[Future[int]]] = {}

    @property
    def asked(self) -> bool:
        """Whether somebody waits for a checkpoint to begin that is a savepoint, too."""
        return any(not request.cancelled() for request in self._asked)

    def __contains__(self, checkpoint: int) -> bool:
        """Whether this checkpoint, which is under way, is to be a savepoint."""
        return checkpoint in self._begun

    def ask(self) -> Future[int]:
        """Ask for one; see ``Job.ask_savepoint``.

        Raises:
            ConfigError: the run is over.
        """
        request = Future[int]()
        with self._lock:
            if self._closed:
                raise ConfigError("A savepoint needs a running job, and this one has ended.")
            self._asked.append(request)
        return request

    def begin(self, checkpoint: int) -> None:
        """All that was asked for by now is to be this checkpoint."""
        with self._lock:
            asked, self._asked = self._asked, []
        wanted = [request for request in asked if request.set_running_or_notify_cancel()]
        if wanted:
            self._begun[checkpoint] = wanted

    def taken(self, checkpoint: int) -> None:
        """The checkpoint is decided, and whole in the store for savepoints."""
        for request in self._begun.pop(checkpoint, ()):
            request.set_result(checkpoint)

    def failed(self, checkpoint: int, why: str, remedy: str = "ask again.") -> None:
        """The checkpoint failed, if it was to be a savepoint."""
        for request in self._begun.pop(checkpoint, ()):
            what = f"Savepoint {checkpoint} was not taken, because its checkpoint failed: {why}"
            request.set_exception(
                UnavailableError(what, job=self._job, epoch=checkpoint, remedy=remedy)
            )

    def __enter__(self) -> Savepoints:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The run is over: what has no answer yet gets one."""
        with self._lock:
            self._closed = True
        remedy = "start the job again, and ask again."
        why = "the job has ended." if error is None else f"the job failed: {error!r}"
        for checkpoint in tuple(self._begun):
            self.failed(checkpoint, why, remedy)
        for request in self._asked:
            if request.set_running_or_notify_cancel():
                what = f"A savepoint was asked for and not begun: {why}"
                request.set_exception(UnavailableError(what, job=self._job, remedy=remedy))
