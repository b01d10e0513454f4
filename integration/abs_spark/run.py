"""A run of a job in this process: its sink and its coordinator, kept from epoch to epoch.

Spark builds a new writer object for every epoch, in processes that live on. What must last (the
connection, above all) is kept here, in the module. A Python worker runs one task at a time, so
nothing is shared between threads.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from abs_core.cell import DEFAULT_PATIENCE
from abs_core.contracts import Sink
from abs_core.coordinator import Coordinator
from abs_core.events import Observer
from abs_core.model import JobState
from abs_core.protocol import Identity, Skip, Write
from abs_spark.message import RunName
from abs_spark.progress import observer
from abs_spark.start import check
from abs_spark.target import Target

_KEPT = 8
"""Runs that a process keeps at most; a worker process may serve many queries in its life."""

_log = logging.getLogger("abs_spark.start")


@dataclass
class Run:
    """One run's sink and coordinator in this process, and whether it has begun here."""

    name: RunName
    sink: Sink
    coordinator: Coordinator
    observe: Observer
    begun: bool = False
    warnings: tuple[str, ...] = ()

    def begin(self, epoch: int) -> tuple[JobState, Write | Skip]:
        """Start the run where no task has, after a preflight; then say what to do with ``epoch``.

        Raises:
            PreflightError: the target cannot keep the promise; nothing was started.
            ProtocolError: as ``Coordinator.begin``.
            TargetError: the target does not answer for good.
        """
        if not self.begun:
            self._preflight()
            self.begun = True
        return self.coordinator.begin(epoch)

    def _preflight(self) -> None:
        job = self.name.job
        register = self.sink.register()
        stored = DEFAULT_PATIENCE.retry(lambda: register.load(job))
        if stored is not None and self.name.run in (stored.state.run, *stored.state.superseded):
            return  # another task has started this run, or it is fenced
        findings = DEFAULT_PATIENCE.retry(lambda: self.sink.preflight(job))
        self.warnings = check(findings, job)
        for warning in self.warnings:
            _log.warning(warning)


_runs: dict[tuple[Target, RunName], Run] = {}
_latest: dict[str, RunName] = {}


def attach(target: Target, name: RunName) -> Run:
    """The run, as it is kept in this process or built now; nothing is started by it.

    Raises:
        TargetError: the target does not answer for good.
    """
    run = _runs.pop((target, name), None)
    if run is None:
        for key in [k for k in _runs if k[0] == target and k[1].job == name.job]:
            _runs.pop(key).sink.close()  # of an earlier run
        while len(_runs) >= _KEPT:
            _runs.pop(next(iter(_runs))).sink.close()
        run = _build(target, name)
    _runs[target, name] = run  # the last one is the one used last
    return run


def drop(target: Target, name: RunName) -> None:
    """Forget the run and close its sink: something failed, so its connection may be of no use."""
    run = _runs.pop((target, name), None)
    if run is not None:
        run.sink.close()


def remember(query_start: str, name: RunName) -> None:
    """Note which run belongs to a start of a query, for ``recall``."""
    while len(_latest) >= _KEPT:
        _latest.pop(next(iter(_latest)))
    _latest[query_start] = name


def recall(query_start: str) -> RunName | None:
    """The run of this start of a query, where this process has committed an epoch of it."""
    return _latest.get(query_start)


def _build(target: Target, name: RunName) -> Run:
    sink = target.sink()
    try:
        identity = Identity(
            job=name.job,
            lineage=name.lineage,
            run=name.run,
            target=DEFAULT_PATIENCE.retry(lambda: sink.target),
            adopt=target.options.common.adopt,
        )
        observe = observer(sink.guarantee().protocol)
        coordinator = Coordinator(
            identity, sink.register(), sink.committer(), observe=observe, fence=sink.fence
        )
    except BaseException:
        sink.close()
        raise
    return Run(name, sink, coordinator, observe)
