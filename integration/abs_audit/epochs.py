"""Epoch by epoch: whether each is whole in every target, or in none. See :func:`audit_epochs`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from duckdb import DuckDBPyConnection

from abs_audit.contracts import Relation
from abs_audit.plan import plan
from abs_audit.workspace import load, prepare, workspace


@dataclass(frozen=True, slots=True)
class EpochFound:
    """What the targets hold of one epoch.

    Args:
        committed: whether the job's register says so.
        rows: that it has.
        found: how many of them are in each target, by the target's name.
    """

    epoch: int
    committed: bool
    rows: int
    found: Mapping[str, int]

    @property
    def shortcoming(self) -> str:
        """What is wrong with it, for people; empty where nothing is."""
        due = self.rows if self.committed else 0
        wrong = [f"{held:,} in {name}" for name, held in self.found.items() if held != due]
        if not wrong:
            return ""
        said = "committed" if self.committed else "not committed"
        there = ", ".join(wrong)
        return f"epoch {self.epoch} is {said}; of its {self.rows:,} rows there are {there}"

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        said = {"epoch": self.epoch, "committed": self.committed, "rows": self.rows}
        return {**said, "found": dict(self.found)}


def audit_epochs(
    epochs: Mapping[int, Relation],
    targets: Mapping[str, Relation],
    frontier: int | None,
    *,
    memory_mib: int = 1024,
    temp_directory: Path | None = None,
) -> list[EpochFound]:
    """Look for the records of each epoch in each target, by whole records.

    An epoch that the register calls committed must be in all targets, and another one in none. A record
    that is in two epochs counts for both where a target has it once, and surplus copies do not count:
    ``audit`` of each target, record by record, finds those.

    Args:
        epochs: the records of each, by its number.
        targets: by name; each is read once.
        frontier: of the job's register: this epoch and all before it are committed. None: none is.

    Raises:
        ConfigError, DataError, TargetError: as ``audit``.
    """
    found: dict[int, dict[str, int]] = {epoch: {} for epoch in epochs}
    rows: dict[int, int] = {}
    for name, target in targets.items():
        with workspace(memory_mib, temp_directory) as connection:
            for epoch, (total, held) in _in_target(connection, epochs, target).items():
                rows[epoch], found[epoch][name] = total, held
    return [
        EpochFound(epoch, frontier is not None and epoch <= frontier, rows[epoch], found[epoch])
        for epoch in sorted(rows)
    ]


def _in_target(
    connection: DuckDBPyConnection, epochs: Mapping[int, Relation], target: Relation
) -> dict[int, tuple[int, int]]:
    """Of each epoch, how many records it has, and how many of them are in the target."""
    counted: dict[int, tuple[int, int]] = {}
    loaded = False
    for epoch, expected in epochs.items():
        matched = plan(expected.columns(connection), target.columns(connection))
        if not loaded:
            prepare(connection, matched)
            load(connection, "actual", target, matched, actual=True)
            loaded = True
        load(connection, "expected", expected, matched, actual=False)
        (row,) = connection.execute(
            "select coalesce(sum(e.n), 0), coalesce(sum(least(e.n, coalesce(a.n, 0))), 0) from "
            "(select digest, count(*) as n from expected group by digest) e left join "
            "(select digest, count(*) as n from actual group by digest) a using (digest)"
        ).fetchall()
        counted[epoch] = int(row[0]), int(row[1])
    return counted
