"""Epoch by epoch: whether each is whole in every target, or in none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from duckdb import DuckDBPyConnection

from abs_audit.contracts import Relation
from abs_audit.plan import Plan
from abs_audit.report import Held, Report
from abs_audit.workspace import load


@dataclass(frozen=True, slots=True)
class EpochFound:
    """What the targets hold of one epoch.

    Args:
        committed: whether the job's register says so.
        found: how many of its records each target should have if it is committed, and how many it
            has; by the target's name.
    """

    epoch: int
    committed: bool
    found: Mapping[str, Held]

    @property
    def shortcoming(self) -> str:
        """What is wrong with it, for people; empty where nothing is."""
        due = {name: held.expected * self.committed for name, held in self.found.items()}
        wrong = [
            f"{held.actual:,} rows in {name} ({due[name]:,} expected)"
            for name, held in self.found.items()
            if held.actual != due[name]
        ]
        said = "committed" if self.committed else "not committed"
        return f"epoch {self.epoch} is {said}; there are {', '.join(wrong)}" if wrong else ""

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {**asdict(self), "whole": not self.shortcoming}


def by_epoch(
    reports: Mapping[str, Report], frontier: int | None, since: Mapping[str, int] | None = None
) -> list[EpochFound]:
    """Judge what audits of a job's targets have counted: a committed epoch must be in all targets,
    and another one in none.

    Args:
        reports: by the target's name.
        frontier: of the job's register: this epoch and all before it are committed. None: none is.
        since: the first epoch of targets that did not have the job's first.
    """
    since = since or {}
    return [
        EpochFound(
            epoch,
            frontier is not None and epoch <= frontier,
            {
                name: report.epochs[epoch]
                for name, report in reports.items()
                if epoch in report.epochs and epoch >= since.get(name, 0)
            },
        )
        for epoch in sorted({epoch for report in reports.values() for epoch in report.epochs})
    ]


def count(
    connection: DuckDBPyConnection, actual: str, plan: Plan, epochs: Mapping[int, Relation]
) -> dict[int, Held]:
    """How many records of each epoch are in the tables ``expected`` and ``actual``, by identity."""
    same = " and ".join(f"e.c{i} is not distinct from t.c{i}" for i in range(len(plan.identity)))
    query = "select count(*) from {} t where exists (select 1 from of_epoch e where " + same + ")"
    held = {}
    for epoch, records in epochs.items():
        mine = plan.identity_in(records.columns(connection))
        if mine is None:
            held[epoch] = Held(0, 0)
            continue
        load(connection, "of_epoch", records, mine, actual=False)
        ((expected,),) = connection.execute(query.format("expected")).fetchall()
        ((there,),) = connection.execute(query.format(actual)).fetchall()
        held[epoch] = Held(expected, there)
    return held
