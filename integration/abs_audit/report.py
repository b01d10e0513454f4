"""The result of an audit as frozen values, and the rule for a clean target."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from abs_core.errors import CorruptionError

KINDS = ("missing", "duplicate", "unexpected", "corrupted")
"""The differences by identity."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared transaction of abs-sinks (its gid starts with ``abs1:``)."""

    gid: str
    age_seconds: float
    on_table: bool
    """It holds a lock on the audited table, so its end will change what a reader sees."""


@dataclass(frozen=True, slots=True)
class Staging:
    """A staging table in the state schema.

    ``rows`` is counted up to ``counted_up_to``; None if it could not be read.
    """

    table: str
    rows: int | None
    counted_up_to: int = 1_000_000


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock of another transaction on the audited table."""

    mode: str
    holder: str
    writes: bool
    """The mode is one that a transaction takes to change rows; it is not at its end yet."""


@dataclass(frozen=True, slots=True)
class OpenDecision:
    """A decided epoch that is not finished; ``target`` as in the register."""

    job: str
    epoch: int
    target: str


@dataclass(frozen=True, slots=True)
class Pending:
    """An open transaction of a topic, or an unfinished upload; ``what`` describes it."""

    what: str
    age_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """Unfinished writes in the target at one moment.

    Args:
        foreign_prepared: prepared transactions of others in the same database.
        pending: unfinished writes to a topic or a bucket.
        unchecked: what could not be inspected, and why; the audit is then not clean.
    """

    prepared: tuple[Prepared, ...] = ()
    foreign_prepared: int = 0
    staging: tuple[Staging, ...] = ()
    locks: tuple[Lock, ...] = ()
    decisions: tuple[OpenDecision, ...] = ()
    pending: tuple[Pending, ...] = ()
    unchecked: tuple[str, ...] = ()

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons why the visible rows may still change; empty if none is known."""
        prepared = [p for p in self.prepared if p.on_table]
        staged = [s for s in self.staging if s.rows]
        writers = [lock for lock in self.locks if lock.writes]
        named = (
            (prepared, "prepared transaction(s) of abs-sinks on the table"),
            (staged, "staging table(s) with rows"),
            (self.decisions, "open decision(s)"),
            (writers, "lock(s) of writers on the table"),
            (self.pending, "unfinished write(s)"),
        )
        return tuple(f"{len(items)} {kind}" for items, kind in named if items)


@dataclass(frozen=True, slots=True)
class Sample:
    """One identity with a difference.

    Args:
        identity: key columns and values as text; all columns without a key.
        records: number of affected records.
        changed: for a corrupted one: column -> (expected, actual), where they differ.
        expected_in: where the expected side holds records of this identity: files, partitions and
            offsets, rows of a table; some of them if there are many, none if it cannot say.
        found_in: the same of the target. It is read once more for this, so it may have changed.
    """

    identity: dict[str, str | None]
    records: int
    changed: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)
    expected_in: tuple[str, ...] = ()
    found_in: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Differences:
    """The two comparisons of one read, in records.

    Per identity (by typed values): ``missing`` is expected and absent; ``corrupted`` has the
    identity with other content; ``duplicate`` is more of an identity than expected; ``unexpected``
    has an identity that was not expected. As a multiset of whole records (by content digest):
    ``absent`` and ``surplus``.

    Raises CorruptionError if the figures contradict each other.
    """

    expected: int
    actual: int
    missing: int
    duplicate: int
    unexpected: int
    corrupted: int
    absent: int
    surplus: int
    samples: dict[str, tuple[Sample, ...]] = field(default_factory=dict)
    ambiguous: int = 0
    """Identities that the expected records hold more than once."""
    scale_only: dict[str, int] = field(default_factory=dict)
    """Columns without a type on either side -> absent records that are there, but for the zeros at
    the end of decimals in these columns. They are counted as different all the same."""

    def __post_init__(self) -> None:
        # Two computations that share no hash and no query must agree: the auditor's own audit.
        balance = self.expected - self.missing + self.duplicate + self.unexpected == self.actual
        absent = self.missing + self.corrupted == self.absent
        surplus = self.duplicate + self.unexpected + self.corrupted == self.surplus
        if not (balance and absent and surplus):
            raise CorruptionError(
                "The comparison by identity and the comparison by content digest contradict each "
                f"other: {self.figures()}.",
                remedy="trust neither result; run the audit again, on another machine or with another "
                "release of duckdb, and report the error.",
            )

    @property
    def none(self) -> bool:
        return not any(getattr(self, kind) for kind in KINDS)

    def figures(self) -> dict[str, int]:
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("samples", "scale_only")
        }


@dataclass(frozen=True, slots=True)
class Held:
    """How many records of an epoch are expected, and how many a target has: by identity."""

    expected: int
    actual: int


@dataclass(frozen=True, slots=True)
class Report:
    """The result of :func:`abs_audit.audit`, which says what it proves.

    Args:
        differences: of the last read.
        moved: records by which the last two reads differ.
        looks: one inspection after each read; empty if the target offers none.
        seconds: duration of the audit.
        left_out: unexpected columns of the target by which it is partitioned.
        epochs: what the target has of each epoch that was asked for, see ``epochs.by_epoch``.
    """

    expected_name: str
    actual_name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    differences: Differences
    reads: int
    moved: int
    looks: tuple[LeftBehind, ...]
    seconds: float
    left_out: tuple[str, ...] = ()
    epochs: Mapping[int, Held] = field(default_factory=dict)

    @property
    def left_behind(self) -> LeftBehind | None:
        """The last inspection."""
        return self.looks[-1] if self.looks else None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the target is not clean, one sentence each; empty if it is clean."""
        figures = self.differences.figures()
        reasons = [f"{figures[kind]} {kind}" for kind in KINDS if figures[kind]]
        if self.moved:
            reasons.append(
                f"the target changed by {self.moved} record(s) between the last two reads"
            )
        # The looks on both sides of the last read count: what was in doubt at either may have
        # changed the target after the read.
        for look in self.looks[-2:]:
            for reason in (*look.doubts, *(f"not checked: {part}" for part in look.unchecked)):
                if reason not in reasons:
                    reasons.append(reason)
        return tuple(reasons)

    @property
    def clean(self) -> bool:
        return not self.reasons

    @property
    def notes(self) -> tuple[str, ...]:
        """Limits of this report."""
        notes = []
        if not self.key:
            notes.append(
                "no key was given, so the whole record is the key: a changed record counts as one "
                "missing and one unexpected record, never as corrupted"
            )
        if self.differences.ambiguous:
            notes.append(
                f"the key is not unique: {self.differences.ambiguous} keys are expected more than "
                "once; records of one key are matched by content, and the rest by count"
            )
        if scale_only := self.differences.scale_only:
            notes.append(
                f"{max(scale_only.values())} of the differing records differ only in trailing zeros of "
                f"decimals (1.50 and 1.5) in {', '.join(map(repr, scale_only))}: neither side has "
                "types there, so text is compared; name the types (--schema, in Python schema=), or "
                "use a table or a file with types as one side"
            )
        if self.left_out:
            notes.append(
                f"not compared: {', '.join(self.left_out)}, by which the target is partitioned, and "
                "which is not expected"
            )
        if not self.looks:
            notes.append("unfinished writes were not checked: this kind of target cannot list them")
        return tuple(notes)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: plain dicts, lists, numbers, text."""
        left, figures = self.left_behind, self.differences.figures()
        return {
            "clean": self.clean,
            "reasons": list(self.reasons),
            "notes": list(self.notes),
            "expected": {"name": self.expected_name, "records": self.differences.expected},
            "actual": {"name": self.actual_name, "records": self.differences.actual},
            "key": list(self.key),
            "columns": list(self.columns),
            **{k: v for k, v in figures.items() if k not in ("expected", "actual")},
            "scale_only": dict(self.differences.scale_only),
            "samples": {
                name: [dataclasses.asdict(sample) for sample in samples]
                for name, samples in self.differences.samples.items()
            },
            "reads": self.reads,
            "moved": self.moved,
            "left_behind": None if left is None else dataclasses.asdict(left),
            "seconds": round(self.seconds, 3),
        }
