"""Keeps a run's sink and coordinator in this process from epoch to epoch.

Spark builds a new writer for every epoch in long-lived processes; connections are kept here. A Python
worker runs one task at a time, so threads share nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from abs_core.certificate import CertificateStore, Origin
from abs_core.coordinator import Coordinator
from abs_core.coordinator.certifier import ParentCertificates
from abs_core.errors import ReplayMismatchError
from abs_core.events import Event, Started
from abs_core.model import JobState, job_key
from abs_core.protocol import RunIdentity, Skip, Write
from abs_spark.checkpoint.certificates import CheckpointCertificates, location
from abs_spark.checkpoint.left_out import counting_left_out
from abs_spark.checkpoint.spark_files import query_id
from abs_spark.names import RunName, is_run_of
from abs_spark.open_sinks import OpenSinks
from abs_spark.process.driver import KILL_SECONDS
from abs_spark.process.executor import check_reached
from abs_spark.process.lru_cache import LruCache
from abs_spark.sink_spec import SinkSpec
from abs_spark.start import Start

_log = logging.getLogger("abs_spark.recovery")


class Run:
    """One run's sink and coordinator in this process.

    Args:
        start: of its sink; is closed with the run.
        identity: the run, as the protocol knows it.
        certificates: in the query's checkpoint, or of a batch write in its job's parent record.
    """

    def __init__(self, start: Start, identity: RunIdentity, certificates: CertificateStore) -> None:
        self.start = start
        self.sink = start.targets.one
        self.warnings: tuple[str, ...] = ()
        self.identity = identity
        self._certificates = certificates
        self._tell = start.observer()
        self._checked = False
        self._reached = False
        self._epoch = -1
        self._started_in = -1
        self.coordinator = self._coordinator()

    def begin(
        self, epoch: int, origin: Origin, *, checked: bool = False
    ) -> tuple[JobState, Write | Skip]:
        """Start the run after a preflight, if no task has, and plan ``epoch``.

        Args:
            origin: read by the planner from the checkpoint.
            checked: the planner has made the preflight for this epoch, and so for this start.

        Raises:
            PreflightError: the target cannot keep the guarantee; nothing was started.
            ProtocolError: as ``Coordinator.begin``.
            TargetError: the target does not answer.
        """
        # Before the start: a run that cannot keep its guarantee must not fence the one before.
        if not (self._checked or checked):
            self.warnings = self.start.check_once(self.identity) or ()
        self._checked = True
        # Before the start, whose event is noted for this epoch (`observe`).
        self._epoch = epoch
        with counting_left_out(self.start.targets.of_register.options.common.checkpoint):
            return self.coordinator.begin(epoch, origin=origin)

    def reach(self) -> None:
        """Check once, before a task's first row, that this executor reaches the target.

        Raises:
            TargetError: it does not.
        """
        if not self._reached:
            check_reached(self.sink, self.start.patience)
            self._reached = True

    def has_started_in(self, epoch: int) -> bool:
        """Whether ``begin(epoch)`` in this process was what raised the generation."""
        return self._started_in == epoch

    def observe(self, event: Event) -> None:
        """Handle an event, and pass it on to logs and metrics."""
        if isinstance(event, Started):
            self._started_in = self._epoch
        self._tell(event)

    def in_haste(self) -> Coordinator:
        """A coordinator with little patience, to end the run."""
        return self._coordinator(in_haste=True)

    def _coordinator(self, *, in_haste: bool = False) -> Coordinator:
        return self.start.coordinator(
            self.identity, self._certificates, {"": 0}, self.observe, in_haste=in_haste
        )


_runs: LruCache[tuple[SinkSpec, RunName], Run] = LruCache(lambda run: run.start.close())
latest: LruCache[str, RunName] = LruCache()
"""The run of each start of a query of which this process has committed an epoch."""


def attach(target: SinkSpec, name: RunName, *, in_haste: bool = False) -> Run:
    """The run from this process's cache, or a new object; does not start the run.

    Args:
        in_haste: use little patience if the object must be built.

    Raises:
        TargetError: the target does not answer.
    """
    return _runs.of(
        (target, name),
        lambda: _build(target, name, in_haste=in_haste),
        lambda kept: kept[0] == target and kept[1].job == name.job,  # of an earlier run
    )


def end(target: SinkSpec, name: RunName, *, tasks_may_run: bool) -> None:
    """End the run, as the query stops; see ``give_up``."""
    give_up(
        name.job,
        lambda: attach(target, name, in_haste=True).in_haste(),
        tasks_may_run=tasks_may_run,
    )


def end_unreported(target: SinkSpec, driver: str | None) -> None:
    """``end`` for a run of which no task has reported; the register identifies it.

    Does nothing if another query or driver holds the generation, or an earlier start of this query: to
    end that one would raise the generation, for which the refused start has just printed a token.

    Args:
        driver: this one, see ``driver.driver_id``.
    """
    lineage = query_id(target.options.common.checkpoint)
    if driver is None or lineage is None:
        return
    job = job_key(target.options.common.job or lineage)

    def coordinator() -> Coordinator | None:
        name = _find(target, job, lineage, driver)
        if name is None:  # a task that is being stopped may be about to start it
            time.sleep(KILL_SECONDS)
            name = _find(target, job, lineage, driver)
        return None if name is None else attach(target, name, in_haste=True).in_haste()

    give_up(job, coordinator, tasks_may_run=True)


def _find(target: SinkSpec, job: str, lineage: str, driver: str) -> RunName | None:
    """The run of this driver's query that holds the generation."""
    with Start(OpenSinks.only(target), job, in_haste=True) as start:
        state = start.state()
    if state is None or state.lineage != lineage or not is_run_of(state.run, driver):
        return None
    if any(name.job == job and name.run == state.run for name in latest.values()):
        return None  # it has committed, so its tasks have reported: it is not of this start
    return RunName(job, lineage, state.run, location(target.options.common.checkpoint))


def give_up(
    job: str, coordinator: Callable[[], Coordinator | None], *, tasks_may_run: bool
) -> None:
    """End a run: commit its decisions and abort its other handles.

    Logs errors and raises none, so that the error that led here is shown. The next start does what is
    left.

    Args:
        coordinator: makes one with little patience; None: there is nothing to end.
        tasks_may_run: wait until Spark has killed the tasks, and sweep again.
    """
    try:
        ending = coordinator()
        if ending is not None and ending.end() and tasks_may_run:
            time.sleep(KILL_SECONDS)
            ending.sweep_ended()
    except Exception as error:  # noqa: BLE001 - not even a defect may hide the first error
        _log.warning("job %s: the run's open transactions cannot be ended now: %s", job, error)


def begun(target: SinkSpec, job: str) -> Origin:
    """Read a batch's entry in its job's parent record, before the first task.

    Args:
        job: the register key, with the token.

    Raises:
        TargetError: the register's system does not answer.
    """
    with Start(OpenSinks.only(target), job) as start:
        [(_, place)] = start.targets.identities(job)
        return _parent(start, place).read()


def another_batch(job: str, why: str, more: str = "") -> ReplayMismatchError:
    """The error for a batch whose name has another one's rows.

    Args:
        why: the difference, as the end of a sentence.
        more: another way out, as the rest of a sentence.
    """
    return ReplayMismatchError(
        f"This batch was written before, with other rows: {why}.",
        job=job,
        why=why,
        remedy="if it is another batch, name it by another value of the option epoch (to "
        "replace what was written, undo it in the target first, and take a new epoch). If it "
        "is the same one, a column is computed anew at each try (current_timestamp(), rand(), "
        f"a sum of floats): make that column a function of the input{more}.",
    )


def _parent(start: Start, place: str) -> ParentCertificates:
    return ParentCertificates(start.targets.register(), start.job, place, start.patience)


def _build(target: SinkSpec, name: RunName, *, in_haste: bool) -> Run:
    start, common = (
        Start(OpenSinks.only(target), name.job, in_haste=in_haste),
        target.options.common,
    )
    try:
        identity = start.identity(name, common.adopt)
        if common.epoch is not None:
            return Run(start, identity, _parent(start, identity.target))
        return Run(start, identity, CheckpointCertificates(common.checkpoint))
    except BaseException:
        start.close()
        raise
