"""The two comparisons of expected with actual, as SQL over two loaded tables.

One is by identity, over typed values without a hash; the other is by multiset, over content
digests. They share no intermediate result, and ``Differences`` refuses contradictory figures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from duckdb import DuckDBPyConnection

from abs_audit.canonical import as_text
from abs_audit.families import Family
from abs_audit.plan import Plan
from abs_audit.report import KINDS, Differences, Sample

MAX_SHOWN = 200
"""Characters of a sample's value that are shown."""


def moved(connection: DuckDBPyConnection, before: str, after: str) -> int:
    """The number of records by which two reads differ, as multisets of digests."""
    absent, surplus = _multiset(connection, before, after)
    return absent + surplus


def compare(
    connection: DuckDBPyConnection,
    expected: str,
    actual: str,
    plan: Plan,
    *,
    samples: int,
    matched: Callable[[], None] = lambda: None,
) -> Differences:
    """Compare two tables that ``workspace.load`` made.

    For each identity, records of equal content are matched first. Of the rest, as many as both
    sides have are corrupted; a surplus of expected is missing; a surplus of actual is duplicate if
    the identity was expected, else unexpected.

    Args:
        samples: most identities to name for each kind.
        matched: called once, when ``verdicts`` and ``sampled`` are there; may fill ``places``.
    """
    absent, surplus = _multiset(connection, expected, actual)
    _match(connection, expected, actual, plan)
    totals = _row(
        connection, f"select {', '.join(f'coalesce(sum({k}), 0)' for k in KINDS)} from verdicts"
    )
    figures = {kind: int(total) for kind, total in zip(KINDS, totals, strict=True)}
    _choose(connection, plan, samples)
    matched()
    return Differences(
        expected=size(connection, expected),
        actual=size(connection, actual),
        absent=absent,
        surplus=surplus,
        ambiguous=_ambiguous(connection, expected, plan),
        scale_only=_scale_only(connection, plan) if absent else {},
        samples={kind: _samples(connection, kind, plan) for kind in KINDS if figures[kind]},
        **figures,
    )


def _multiset(connection: DuckDBPyConnection, one: str, other: str) -> tuple[int, int]:
    """The number of records that only ``one`` has, and only ``other``, with multiplicity."""
    row = _row(
        connection,
        "select coalesce(sum(greatest(n, 0)), 0), coalesce(sum(greatest(-n, 0)), 0) from "
        f"(select sum(n) as n from (select digest, 1 as n from {one} "
        f"union all select digest, -1 from {other}) group by digest having sum(n) <> 0)",
    )
    return int(row[0]), int(row[1])


def _match(connection: DuckDBPyConnection, expected: str, actual: str, plan: Plan) -> None:
    """Make ``differing`` (contents with a surplus on a side) and ``verdicts`` (per identity)."""
    all_columns = _columns(len(plan.pairs))
    key = _columns(len(plan.identity))
    connection.execute(
        "create or replace table differing as "
        f"select {all_columns}, sum(e)::bigint as e, sum(a)::bigint as a from "
        f"(select {all_columns}, 1 as e, 0 as a from {expected} "
        f"union all select {all_columns}, 0, 1 from {actual}) "
        f"group by {all_columns} having sum(e) <> sum(a)"
    )
    same = " and ".join(f"x.{c} is not distinct from d.{c}" for c in key.split(", "))
    connection.execute(
        "create or replace table verdicts as "
        f"select {key}, least(short, over_) as corrupted, short - least(short, over_) as missing, "
        "case when known then over_ - least(short, over_) else 0 end as duplicate, "
        "case when known then 0 else over_ - least(short, over_) end as unexpected from "
        f"(select {key}, short, over_, exists (select 1 from {expected} x where {same}) as known "
        f"from (select {key}, sum(greatest(e - a, 0)) as short, sum(greatest(a - e, 0)) as over_ "
        f"from differing group by {key}) d)"
    )


def _scale_only(connection: DuckDBPyConnection, plan: Plan) -> dict[str, int]:
    """Per column, the number of absent records that differ only in trailing zeros of a decimal.

    Only columns that have a type on neither side count: there, 1.50 and 1.5 are different texts.
    """
    untyped = [
        index
        for index, pair in enumerate(plan.pairs)
        if pair.expected.family is pair.actual.family is Family.UNTYPED
        and pair.common.family is Family.TEXT
    ]
    if not untyped:
        return {}
    scaled = ", ".join(f"scaleless(c{index}) as c{index}" for index in untyped)
    with_zeros = ", ".join(f"coalesce(bool_or(c{i} <> scaleless(c{i})), false)" for i in untyped)
    absent, *zeros = _row(
        connection, f"select sum(greatest(e - a, 0)), {with_zeros} from differing"
    )
    (still,) = _row(
        connection,
        "select coalesce(sum(greatest(n, 0)), 0) from (select sum(e - a) as n from "
        f"(select * replace ({scaled}) from differing) group by {_columns(len(plan.pairs))})",
    )
    records = int(absent) - int(still)
    named = zip(untyped, zeros, strict=True)
    return {plan.names[i]: records for i, has_zeros in named if has_zeros and records}


def _choose(connection: DuckDBPyConnection, plan: Plan, most: int) -> None:
    """Make ``sampled``, the first identities of each kind, and ``places``, still empty."""
    key = _columns(len(plan.identity))
    first = (
        f"(select '{kind}' as kind, rowid as verdict, {kind} as records, {key} from verdicts "
        f"where {kind} > 0 order by {key} limit {most:d})"
        for kind in KINDS
    )
    connection.execute(f"create or replace table sampled as {' union all '.join(first)}")
    connection.execute(
        "create or replace table places (verdict bigint, actual bool, place varchar)"
    )


def _samples(connection: DuckDBPyConnection, kind: str, plan: Plan) -> tuple[Sample, ...]:
    width = len(plan.identity)
    there, actual_places = (
        "(select list(p.place order by p.place) from places p "
        f"where p.verdict = s.verdict and p.actual = {side})"
        for side in (False, True)
    )
    rows = connection.execute(
        f"select verdict, records, {there}, {actual_places}, {_texts(plan, width, 's')} from sampled s "
        f"where kind = '{kind}' order by {_columns(width)}"
    ).fetchall()
    return tuple(
        Sample(
            {name: shortened(text) for name, text in zip(plan.identity, texts, strict=True)},
            int(records),
            _changed(connection, verdict, plan) if kind == "corrupted" else {},
            tuple(expected or ()),
            tuple(actual or ()),
        )
        for verdict, records, expected, actual, *texts in rows
    )


def _changed(
    connection: DuckDBPyConnection, verdict: int, plan: Plan
) -> dict[str, tuple[str | None, str | None]]:
    """The fields in which the first expected and actual record of one identity differ."""
    same = " and ".join(f"d.c{i} is not distinct from v.c{i}" for i in range(len(plan.identity)))
    before, after = (
        _row(
            connection,
            f"select {_texts(plan, len(plan.pairs), 'd')} from differing d, verdicts v "
            f"where v.rowid = {verdict:d} and {same} and d.{more} > d.{less} order by all limit 1",
        )
        for more, less in (("e", "a"), ("a", "e"))
    )
    return {
        name: (shortened(old, new), shortened(new, old))
        for name, old, new in zip(plan.names, before, after, strict=True)
        if old != new
    }


def shortened(text: str | None, other: str | None = None) -> str | None:
    """At most ``MAX_SHOWN`` characters: the start, or from where it differs from ``other``."""
    if text is None or len(text) <= MAX_SHOWN:
        return text
    pairs = zip(text, other or "", strict=False)
    same = next((at for at, (mine, its) in enumerate(pairs) if mine != its), len(other or ""))
    start = max(0, min(same, len(text)) - MAX_SHOWN // 4)
    cut = text[start : start + MAX_SHOWN]
    return f"{'…' if start else ''}{cut}{'…' if start + MAX_SHOWN < len(text) else ''}"


def _ambiguous(connection: DuckDBPyConnection, expected: str, plan: Plan) -> int:
    if not plan.keys:
        return 0
    key = _columns(plan.keys)
    query = f"select count(*) from (select 1 from {expected} group by {key} having count(*) > 1)"
    return int(_row(connection, query)[0])


def _columns(count: int) -> str:
    return ", ".join(f"c{index}" for index in range(count))


def _texts(plan: Plan, count: int, table: str) -> str:
    # Text, not values: Python has no infinite dates and no year 10000.
    return ", ".join(
        as_text(f"{table}.c{index}", pair.common) for index, pair in enumerate(plan.pairs[:count])
    )


def size(connection: DuckDBPyConnection, table: str) -> int:
    """The number of records in a table."""
    return int(_row(connection, f"select count(*) from {table}")[0])


def _row(connection: DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    # To the end: duckdb refuses other work on a connection whose result is not fetched whole.
    (row,) = connection.execute(query).fetchall()
    return row
