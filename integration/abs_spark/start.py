"""The start of a run: the same in Spark's planner, a task, the commit process and ``foreachBatch``.

What each of them does before the first row stands here once: it opens the job's sinks, checks them,
shows their guarantees, names the run to the protocol and makes its coordinator.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import inf

from abs_core.births import rules as births
from abs_core.births.parent import token_of
from abs_core.certificate import CertificateStore
from abs_core.contracts import Inventory
from abs_core.coordinator import Coordinator
from abs_core.events import Observer
from abs_core.model import JobState
from abs_core.preflight import check, describe
from abs_core.protocol import RunIdentity, has_started
from abs_spark.names import Announced, RunName
from abs_spark.open_sinks import OpenSinks, joined
from abs_spark.process.lru_cache import LruCache
from abs_spark.progress import observer_of
from abs_spark.sink_spec import SinkSpec

HASTE_SECONDS = 5.0
"""Patience when a run ends itself; the next start does what is left."""

_log = logging.getLogger("abs_spark.start")


class Start:
    """A job's start on its sinks; use it as a context that closes them, or call ``close``.

    Args:
        targets: the sinks, open.
        job: the register key.
        in_haste: use little patience, to end a run.
    """

    def __init__(self, targets: OpenSinks, job: str, *, in_haste: bool = False) -> None:
        self.targets = targets
        self.job = job
        self._longest = HASTE_SECONDS if in_haste else inf
        self.patience = replace(targets.patience, job=job)
        targets.if_missing(self._check_new)

    def __enter__(self) -> Start:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.targets.close()

    def state(self) -> JobState | None:
        """The job's state as the register has it now; None if the job has none yet."""
        register = self.targets.register
        stored = self.patience.at_most(self._longest).retry(lambda: register().load(self.job))
        return None if stored is None else stored.state

    def _check_new(self, sink: str) -> None:
        """Raise IdentityError if the job has committed to this sink, whose target is missing."""
        error = births.missing_target(self.state() or self._batch(), sink)
        if error is not None:
            raise error

    def _batch(self) -> JobState | None:
        """A state of this batch job under another token that has committed; None if there is none."""
        register, name = self.targets.register(), self.job.partition("@")[0]
        if token_of(self.job) is None or not isinstance(register, Inventory):
            return None
        jobs = self.patience.at_most(self._longest).retry(register.jobs)
        tokens = (s.state for s in jobs if s.state.job.partition("@")[0] == name)
        return next((state for state in tokens if state.last_decided is not None), None)

    def identity(self, name: RunName, adopt: str | None) -> RunIdentity:
        """The run as the protocol knows it; asks each sink for its target.

        Args:
            adopt: consent: the token that a refusal names.
        """
        targets = self.targets.identities(self.job, self._longest)
        named = targets if any(self.targets.names) else ()
        return RunIdentity(**asdict(name), target=joined(targets), adopt=adopt, sinks=named)

    def check(self) -> tuple[str, ...]:
        """Run the preflight of all sinks; its warnings.

        Raises:
            PreflightError: a target cannot keep the guarantee; nothing was started.
            TargetError: it refuses, or does not answer for as long as the patience lasts.
        """
        return check(self.targets.preflight(self.job), self.job, _log)

    def check_once(self, identity: RunIdentity) -> tuple[str, ...] | None:
        """``check``, unless the run has started, or is fenced: then None."""
        return None if has_started(self.state(), identity) else self.check()

    def show(self) -> None:
        """Print the guarantee of each sink under its options, and what holds for all together."""
        for name, guarantee in self.targets.guarantees():
            _log.info("%s", describe(name, guarantee, self.job))
        for line in self.targets.shared_transactions():
            _log.info("job %s: %s", self.job, line)
        if not self.targets.own:
            _log.info(
                "job %s: %d sinks under one decision: after recovery an epoch is in all of them or in "
                "none; while it commits, one may show it before another",
                self.job,
                len(self.targets.names),
            )

    def observer(self) -> Observer:
        """Logs and counts the events of the run."""
        return observer_of(dict(self.targets.opened()))

    def coordinator(
        self,
        identity: RunIdentity,
        certificates: CertificateStore,
        numbers: Mapping[str, int],
        observe: Observer,
        *,
        in_haste: bool = False,
    ) -> Coordinator:
        """The coordinator of a run; it has not started the run.

        Args:
            numbers: of the sinks, by name.
            in_haste: use little patience, to end the run.
        """
        return Coordinator(
            identity,
            self.targets.register(),
            self.targets.committer(numbers),
            patience=self.patience.at_most(HASTE_SECONDS) if in_haste else self.patience,
            observe=observe,
            certificates=certificates,
            is_empty=self.targets.is_empty,
            fence=self.targets.fence,
        )


_announced: LruCache[tuple[SinkSpec, str], bool] = LruCache()


def announce(target: SinkSpec, job: str | None) -> Announced:
    """On the driver, before the first row: check the target; of a new job, show the guarantee.

    Spark asks its planner process for a writer at every epoch, without saying for which run. So the
    check is once in the life of that process, and the guarantee is shown here for a job that has no
    register yet. If a job continues, the commit process shows it, with the run's first commit.

    Args:
        job: the register key; None if the driver cannot know it: then the tasks check.

    Raises:
        PreflightError: the target cannot keep the promise.
        TargetError: it refuses, or could not be reached for as long as the option patience says.
    """
    if job is None or _announced.get((target, job)):
        return Announced()
    # Spark's planner is a new process now and then, also in the middle of a query: an outage of some
    # seconds must not end the query here, where a commit would go on after it.
    with Start(OpenSinks.only(target), job) as start:
        warn(start.check())
        is_new = start.state() is None
        if is_new:
            start.show()
    _announced.put((target, job), True)
    return Announced(checked=True, shown=is_new)


def warn(warnings: Sequence[str]) -> None:
    """Log each, once."""
    for warning in dict.fromkeys(warnings):
        _log.warning(warning)


def told_by_rows(job: str, replay: str = "digest") -> str:
    """The warning for a checkpoint from which an epoch's input cannot be read.

    Args:
        replay: the option.
    """
    return (
        f"job {job}: the driver cannot read the checkpoint's offsets; a replayed epoch is recognised "
        f"by {_BY[replay]}. Set the option checkpointLocation, in a file system that pyarrow can read."
    )


_BY = {
    "digest": "a digest of its rows, which takes the tasks some time",
    "count": "its row count only",
}
