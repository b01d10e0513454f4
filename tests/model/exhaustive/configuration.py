"""What is explored: which runs of a job there are, and by which rules they go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from abs_core import protocol
from abs_core.errors import AbandonedError, FencedError, ProtocolError


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One run of the job, started at any time, once.

    Args:
        content: what its epochs hold. Runs of one content replay each other's epochs; a run of
            another content in the same lineage has an edited or rolled-back checkpoint.
        partitions: tasks of each epoch; runs may differ, as a replay may be partitioned otherwise.
        retries: extra attempts of the first partition, alive at the same time as the first one.
        adopts: it may take over from any other lineage.
        first: the epoch that its checkpoint starts with.
        after: it starts only once so many epochs are noted as done.
    """

    content: str = "rows"
    lineage: str = "lineage"
    partitions: int = 1
    retries: int = 0
    adopts: bool = False
    first: int = 0
    after: int = 0

    @property
    def slots(self) -> list[tuple[int, int]]:
        """Partition and attempt of each writer of an epoch."""
        return [(0, attempt) for attempt in range(1 + self.retries)] + [
            (partition, 0) for partition in range(1, self.partitions)
        ]


@dataclass(frozen=True, slots=True)
class Rules:
    """The functions that decide; tests put a wrong one in place of a right one.

    The switches below them leave out a step of the coordinator or the target; ``compares_versions``:
    of the compare-and-set that decides, or co-commits.
    """

    start: Callable[..., protocol.Verdict] = protocol.start
    generation_of: Callable[..., Any] = protocol.generation_of
    plan: Callable[..., Any] = protocol.plan
    same_epoch: Callable[..., Any] = protocol.same_epoch
    decide: Callable[..., protocol.Verdict] = protocol.decide
    co_commit: Callable[..., protocol.Verdict] = protocol.co_commit
    finish: Callable[..., protocol.Verdict] = protocol.finish
    abandon: Callable[..., protocol.Verdict] = protocol.abandon
    end: Callable[..., protocol.Verdict] = protocol.end
    sweepable: Callable[..., bool] = protocol.sweepable
    forgettable: Callable[..., bool] = protocol.sweepable

    compares_versions: bool = True
    decides_first: bool = True
    awaits_commits: bool = True
    looks_again: bool = True
    abandons_first: bool = True
    inspects: bool = True


@dataclass(frozen=True, slots=True)
class Configuration:
    """One exploration.

    Args:
        runs: in the order of their first step; runs that are equal are told apart by it alone.
        epochs: how many epochs each run works through.
        co_commits: rows and register change in one transaction.
        aborts: the engine may give an epoch up at any step of it.
        ends: giving up an epoch is to give the whole run up: its engine stops.
        stubborn: having given it up, it may call commit all the same.
        expected: refusals that may end a run here, besides being fenced or given up.
        away: each partition's handles lie in a system of their own, and all but the first may be
            away: a sweep looks into those that answer, and into the others later, or not at all.
            (That a request to one comes late, or never, is so everywhere; a decision waits.)
        recovers: from every state one more run, alone, must bring the job to its end.
    """

    name: str
    runs: tuple[RunSpec, ...]
    epochs: int = 1
    co_commits: bool = False
    aborts: bool = False
    ends: bool = False
    stubborn: bool = False
    expected: tuple[type[ProtocolError], ...] = ()
    away: bool = False
    recovers: bool = True
    rules: Rules = field(default_factory=Rules)

    @property
    def refusals(self) -> tuple[type[ProtocolError], ...]:
        given_up = (AbandonedError,) if self.aborts else ()
        return (FencedError, *given_up, *self.expected)
