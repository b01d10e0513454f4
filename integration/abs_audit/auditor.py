"""The audit: reads the expected records once, and the target until its contents are stable.

A clean report proves: at the inspection between the last two reads, the target held exactly the
expected records in the compared columns, and no known unfinished write could still change them.

It does NOT cover:

- later writes: by a job that runs or restarts, or a zombie that holds no lock on the table;
- the expected side (and an epoch's records): it is read once and taken as the truth;
- columns that are not compared; the order of records; who wrote them, when, or (unless the records
  of each epoch are given) in which epoch; wrong states that readers saw earlier;
- a change made after one read and undone before the next;
- differences that are equal by value: -0.0 and 0.0, the bits of a NaN, 1.0 and 1.00, a
  timestamp's zone, padding of char(n), key order and blanks in JSON;
- which of two records of one identity has the changed value, where the key is not unique;
- unfinished writes in targets that cannot report them (files);
- malice: it finds accidents, not forgery of both sides or of 128-bit digests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from duckdb import DuckDBPyConnection

from abs_audit.carry import types_of
from abs_audit.comparison import compare, moved, size
from abs_audit.contracts import Relation
from abs_audit.epochs import count
from abs_audit.plan import Plan, plan
from abs_audit.progress import meter_here
from abs_audit.report import LeftBehind, Report
from abs_audit.workspace import load, locate, prepare, workspace
from abs_core.errors import OptionError

PAUSE_SECONDS = 0.2
"""Between two looks at a target that is in doubt, while ``settle`` lasts."""

MIN_MEMORY_MIB = 64


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """How an audit compares, and with which means.

    Args:
        key: columns that identify a record. Without a key a changed record counts as missing and
            unexpected.
        columns: what to compare; None: all, and both sides must have the same names.
        schema: types of columns that have a type on neither side, such as JSON: then 1.50 equals
            1.5, and 12:00:00Z equals 12:00:00.000Z. See ``ddl``.
        settle: seconds to go on until the target is stable. 0: two reads.
        samples: most identities to name for each kind of difference.
        memory_mib: memory limit of duckdb; the rest is spilled.
        temp_directory: for spilling; needs room for twice the target and once expected.

    Raises:
        OptionError: a value is invalid.
    """

    key: Sequence[str] = ()
    columns: Sequence[str] | None = None
    schema: pa.Schema | None = None
    settle: float = 0.0
    samples: int = 10
    memory_mib: int = 1024
    temp_directory: Path | None = None

    def __post_init__(self) -> None:
        if isinstance(self.key, str):
            raise OptionError("key is one text.", remedy="give a list of column names.")
        if not 0 <= self.settle < float("inf"):
            raise OptionError(f"settle is {self.settle}.", remedy="give seconds, 0 or more.")
        if self.samples < 0:
            raise OptionError(f"samples is {self.samples}.", remedy="give 0 or more.")
        if self.memory_mib < MIN_MEMORY_MIB:
            raise OptionError(
                f"memory_mib is {self.memory_mib}.", remedy=f"give {MIN_MEMORY_MIB} or more."
            )


def audit(
    expected: Relation,
    actual: Relation,
    settings: AuditSettings | None = None,
    *,
    left_behind: Callable[[], LeftBehind] | None = None,
    epochs: Mapping[int, Relation] | None = None,
) -> Report:
    """Compare a target with the expected records, record by record.

    The target is read completely at least twice, never up to the expected count, and inspected for
    unfinished writes after each read. It is clean only if the last read equals what was expected
    both per identity (typed values) and as a multiset (content digests), the last two reads agree,
    and the inspections before and after the last read found nothing in doubt: no prepared
    transaction of abs-sinks on the table, no staging table with rows, no open decision, no lock of
    a writer. So a duplicate that arrives after the first read is in the last read, or its
    transaction was visible to an inspection, or it touched the table after the last inspection.

    The module says what a clean report proves.

    Args:
        left_behind: finds what is in doubt; default: the target's own inspection.
        epochs: the records of each epoch, of which the key's columns are read (without a key, all):
            the report then says how many records of each are expected and how many are in the target.

    Raises:
        ConfigError: memory or disk is too small.
        DataError: columns or types do not match, or a value cannot be read.
        TargetError: a system does not answer, or refuses.
        CorruptionError: the two comparisons contradict each other.
    """
    settings = settings or AuditSettings()
    start = time.monotonic()
    look = left_behind or actual.left_behind
    with workspace(settings.memory_mib, settings.temp_directory) as connection:
        meter = meter_here()
        meter.begin("looking at the columns", connection)
        matched = matched_plan(connection, expected, actual, settings, epochs or {})
        prepare(connection, matched)
        meter.begin("reading what is expected", connection)
        load(connection, "expected", expected, matched, actual=False)
        latest, reads, last_move, looks = _read_until_still(
            connection, actual, matched, look, start + settings.settle
        )
        meter.begin("comparing", connection)
        where = partial(locate, connection, expected, actual, matched)
        differences = compare(
            connection, "expected", latest, matched, samples=settings.samples, matched=where
        )
        counted = count(connection, latest, matched, epochs or {})
    return Report(
        expected_name=expected.name,
        actual_name=actual.name,
        key=tuple(settings.key),
        columns=matched.names,
        left_out=matched.left_out,
        differences=differences,
        reads=reads,
        moved=last_move,
        looks=looks,
        seconds=time.monotonic() - start,
        epochs=counted,
    )


def matched_plan(
    connection: DuckDBPyConnection,
    expected: Relation,
    actual: Relation,
    settings: AuditSettings,
    epochs: Mapping[int, Relation],
) -> Plan:
    """Which columns are compared, and as what; raises as ``audit`` for those that do not fit."""
    declared = None
    if settings.schema is not None:
        declared = types_of(connection.from_arrow(settings.schema.empty_table()), "the schema")
    matched = plan(
        expected.columns(connection),
        actual.columns(connection),
        key=settings.key,
        columns=settings.columns,
        declared=declared,
    )
    for records in epochs.values():
        matched = matched.widened(records.columns(connection))
    return matched


def _read_until_still(
    connection: DuckDBPyConnection,
    actual: Relation,
    matched: Plan,
    look: Callable[[], LeftBehind | None],
    deadline: float,
) -> tuple[str, int, int, tuple[LeftBehind, ...]]:
    """Read at least twice, until two reads agree and nothing is in doubt, or the deadline passes.

    Returns the last read's table, the number of reads, the records by which the last two reads
    differ, and the result of each inspection.
    """
    tables = ("actual_odd", "actual_even")
    looks: list[LeftBehind] = []
    reads = 0
    records = size(connection, "expected")
    meter = meter_here()

    def inspect() -> None:
        if (seen := look()) is not None:
            looks.append(seen)

    while True:
        reads += 1
        step = f"reading the target, read {reads}"
        meter.begin(step, connection, of=records)
        latest, before = tables[reads % 2], tables[(reads + 1) % 2]
        load(connection, latest, actual, matched, actual=True)
        records = size(connection, latest)
        inspect()
        if reads == 1:
            continue
        difference = moved(connection, before, latest)
        still = not difference and not any(seen.doubts for seen in looks[-2:])
        if still or time.monotonic() >= deadline:
            return latest, reads, difference, tuple(looks)
        while looks and looks[-1].doubts and time.monotonic() < deadline:
            time.sleep(PAUSE_SECONDS)
            inspect()
