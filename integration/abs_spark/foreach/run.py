"""One run of a job in the driver: its sinks and its coordinator, from batch to batch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from abs_core import protocol, sinkmap
from abs_core.births import rules as births
from abs_core.births.rules import Failed
from abs_core.certificate import Certificate, Origin
from abs_core.coordinator import Coordinator, Report
from abs_core.errors import IdentityError
from abs_core.model import JobState, Share
from abs_core.protocol import Skip, Write
from abs_spark.checkpoint.certificates import certificates_of
from abs_spark.checkpoint.failures import FailedBatch
from abs_spark.checkpoint.left_out import counting_left_out
from abs_spark.checkpoint.spark_files import input_of, with_checkpoint
from abs_spark.foreach.process import Known, runs
from abs_spark.names import RunName
from abs_spark.open_sinks import OpenSinks
from abs_spark.run import give_up
from abs_spark.start import HASTE_SECONDS, Start, told_by_rows, warn

_log = logging.getLogger("abs_spark.start")


_LEFT_OUT = (
    "job %s: the sink %s (%s) is left out from now on. If the run before was cut off, what it had "
    "pre-committed there stays: `abs in-doubt abort %s` with that sink's place ends it."
)


class EpochRun:
    """A job's run in the process that Spark's driver calls.

    Args:
        name: its job, lineage and run.
        targets: are closed with the run.
        checkpoint: the query's ``checkpointLocation``.
    """

    def __init__(
        self, name: RunName, targets: OpenSinks, checkpoint: str, adopt: str | None
    ) -> None:
        self.name = name
        self.targets = targets
        self._checkpoint = checkpoint
        self._failed_batch = FailedBatch(checkpoint, name.job)
        self._told_of_rows = False
        self._asked: int | None = None
        self._failed: Failed | None = None
        self._looks_again = False
        self._origin: Origin | None = None
        self._start = Start(targets, name.job)
        self._patience = self._start.patience
        beside = runs.jobs(name.lineage, name.run)
        self._certificates = with_checkpoint(self._patience).retry(
            lambda: certificates_of(checkpoint, name.job, beside)
        )
        self.identity = self._start.identity(name, adopt)
        self.numbers = self._expected_numbers()
        """The numbers of the sinks, by name."""
        self._coordinator = self._coordinate()

    def begin(self, epoch: int) -> tuple[JobState, Write | Skip]:
        """Start the run if it has not started; return what to do with the epoch.

        Raises:
            PreflightError: a target cannot keep the guarantee; nothing was started.
            ProtocolError: as ``Coordinator.begin``; or the epoch was finished by this very run.
            EpochGapError: an earlier epoch failed, and was not written.
            TargetError: a target does not answer for as long as the patience lasts.
        """
        with counting_left_out(self._checkpoint):
            return self._begin(epoch)

    def _begin(self, epoch: int) -> tuple[JobState, Write | Skip]:
        if self._origin is None:
            # Before the run starts: a certificate of its own says nothing of what was there before.
            origin = with_checkpoint(self._patience).retry(self._certificates.read)
            # The note gets the job's new name first: under the old one the check would not find it.
            self._bring_note(origin.certificate)
            self._check_none_passed_over(epoch)
            warnings = self._start.check_once(self.identity)
            if warnings is not None:
                warn(warnings)
                self._start.show()
            self._origin = origin
        elif self._looks_again:
            self._check_none_passed_over(epoch)
        self._looks_again = False
        state, plan = self._coordinator.begin(epoch, gaps_allowed=True, origin=self._origin)
        self._note(self._known)
        if state.sinks and not self.identity.sinks:
            raise _without_a_name(state)
        if state.sinks and sinkmap.numbers(state) != self.numbers:
            # Another run started between our look and our start, with other sinks.
            self.numbers = sinkmap.numbers(state)
            self._coordinator = self._coordinate()
        if isinstance(plan, Skip):
            self._known.check_not_written(self.name.job, epoch)
        return state, plan

    def look_again(self) -> None:
        """After a failed batch of an unknown run: the next batch checks that none was passed over."""
        self._looks_again = True

    def fingerprint(self, epoch: int) -> str | None:
        """See ``checkpoint.fingerprint``; a run warns once if there is none.

        Raises:
            UnavailableError: the checkpoint could be read before, and cannot be read now.
        """
        fingerprint, self._asked = input_of(self._checkpoint, epoch, self._patience)
        if fingerprint is None and not self._told_of_rows:
            warn([told_by_rows(self.name.job)])
            self._told_of_rows = True
        return fingerprint

    def is_partly_written(self, epoch: int) -> bool:
        """Whether another call, with more rows of this epoch, failed."""
        return self._failed == Failed(epoch, partly=True)

    def check_rows(self, state: JobState, epoch: int, rows: int) -> None:
        """Check that a finished epoch had so many rows.

        Raises:
            ReplayMismatchError: it had another number; skipping it would lose data.
        """
        refused = protocol.same_epoch(state, epoch, None, rows)
        if refused is not None:
            raise refused.error

    def commit(self, epoch: int, shares: Sequence[Share], fingerprint: str | None) -> None:
        """See ``Coordinator.commit``."""
        asked = self._asked
        report = Report(epoch, shares, fingerprint, gaps_allowed=True, alone=True, asked=asked)
        self._coordinator.commit(report)
        self._note(self._known.and_finished(epoch))
        if self._failed is not None and self._failed.epoch <= epoch:
            self._forget_failed()

    def end(self, *, tasks_may_run: bool) -> None:
        """Give the run up, see ``run.give_up``."""
        ending = partial(self._coordinate, in_haste=True)
        give_up(self.name.job, ending, tasks_may_run=tasks_may_run)

    def end_leftovers(self) -> None:
        """End the run if something of its job is in doubt; call when its query has ended."""

        def coordinator() -> Coordinator | None:
            retry = self._patience.at_most(HASTE_SECONDS).retry
            asked = (
                partial(self.targets.in_doubt, name, self.name.job) for name in self.targets.names
            )
            return self._coordinate(in_haste=True) if any(map(retry, asked)) else None

        give_up(self.name.job, coordinator, tasks_may_run=False)

    def close(self) -> None:
        self._start.close()

    def _coordinate(self, *, in_haste: bool = False) -> Coordinator:
        return self._start.coordinator(
            self.identity,
            self._certificates,
            self.numbers,
            self._start.observer(),
            in_haste=in_haste,
        )

    def _expected_numbers(self) -> dict[str, int]:
        """The numbers that the start will give the sinks."""
        if not self.identity.sinks:
            return {self.targets.names[0]: 0}
        state = self._start.state()
        if state is None:
            return {sink.name: sink.number for sink in sinkmap.first(self.identity.sinks)}
        mapped = sinkmap.assign(state, self.identity.sinks)
        if isinstance(mapped, IdentityError):
            raise mapped
        present = {sink.number for sink in state.sinks if sink.until is None}
        for sink in mapped:
            if sink.until is not None and sink.number in present:
                _log.warning(_LEFT_OUT, self.name.job, sink.name, sink.target, self.name.job)
        return {sink.name: sink.number for sink in mapped if sink.until is None}

    @property
    def _known(self) -> Known:
        return runs.of(self.name.lineage, self.name.run, self.name.job)

    def _note(self, history: Known) -> None:
        runs.note(self.name.lineage, self.name.run, self.name.job, history)

    def _bring_note(self, certificate: Certificate | None) -> None:
        """If the job was renamed, give its note of a failed batch the new name."""
        if certificate is None or certificate.job == self.name.job:
            return
        state = self._start.state()
        if state is not None and state.register == certificate.register:
            old = certificate.job
            with_checkpoint(self._patience).retry(lambda: self._failed_batch.rename(old))

    def _check_none_passed_over(self, epoch: int) -> None:
        """Before the run starts, check that Spark has not moved on past a failed batch."""
        failed = self._failed = with_checkpoint(self._patience).retry(self._failed_batch.read)
        if failed is None or epoch <= failed.epoch:
            return
        refused = births.passed_over(self._start.state(), self.identity, failed, epoch)
        if refused is not None:
            raise refused.error
        self._forget_failed()

    def _forget_failed(self) -> None:
        self._failed_batch.forget()
        self._failed = None


def _without_a_name(state: JobState) -> IdentityError:
    names = [sink.name for sink in state.sinks if sink.until is None]
    return IdentityError(
        f"The job's sinks have names ({', '.join(names)}), and this one has none.",
        job=state.job,
        remedy=f"give it its old name: abs_spark.sink(..., name={names[0]!r}).",
    )
