"""What a task tells the commit process."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from abs_core.model import Share


@dataclass(frozen=True, slots=True)
class RunName:
    """One start of one job.

    Args:
        job: the register key, see ``abs_core.model.job_key``.
        lineage: whose epoch numbers these are.
        run: Spark's run id; for a batch write, a random one.
        checkpoint: where the query's checkpoint lies, see ``certificates.location``.
    """

    job: str
    lineage: str
    run: str
    checkpoint: str | None = None


@dataclass(frozen=True, slots=True)
class Announced:
    """What the planner has done for this epoch's run, before the first row.

    Args:
        checked: the preflight; its warnings are on the driver's console.
        shown: the guarantee.
    """

    checked: bool = False
    shown: bool = False


@dataclass(frozen=True)
class EpochMessage(WriterCommitMessage):
    """A task's share of an epoch. Some hundred bytes and its columns' digests, no secret (I9).

    Args:
        name: the run that the task worked for.
        epoch: the epoch that it wrote or drained.
        share: what it wrote or drained.
        started: whether this task is the one that raised the generation, in this epoch.
        announced: what the planner has shown already.
        warnings: what the task's preflight warned of, where the planner made none.
    """

    name: RunName
    epoch: int
    share: Share
    started: bool
    announced: Announced
    warnings: tuple[str, ...] = ()
