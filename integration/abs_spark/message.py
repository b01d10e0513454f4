"""The message of a task to the commit process."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from abs_core.model import Share
from abs_spark.names import Announced, RunName


@dataclass(frozen=True)
class EpochMessage(WriterCommitMessage):
    """A task's share of an epoch. Some hundred bytes and its columns' digests, no secret (I9).

    Args:
        name: the task's run.
        started: whether this task raised the generation in this epoch.
        announced: what the planner has already shown.
        warnings: of the task's preflight, if the planner made none.
        readable: whether the planner could read the checkpoint.
    """

    name: RunName
    epoch: int
    share: Share
    started: bool
    announced: Announced
    warnings: tuple[str, ...] = ()
    readable: bool = False
