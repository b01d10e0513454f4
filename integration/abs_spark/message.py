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
    """

    job: str
    lineage: str
    run: str


@dataclass(frozen=True)
class EpochMessage(WriterCommitMessage):
    """A task's share of an epoch. Some hundred bytes, no secret (I9).

    Args:
        name: the run that the task worked for.
        epoch: the epoch that it wrote or drained.
        share: what it wrote or drained.
        announced: whether the driver has shown the run's guarantee already.
        warnings: what the task's preflight warned of; the driver shows it where nobody has.
    """

    name: RunName
    epoch: int
    share: Share
    announced: bool
    warnings: tuple[str, ...] = ()
