"""The scoreboard's page and the README's rows, from the result file: no figure is typed in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

BEGIN, END = "<!-- scoreboard -->", "<!-- /scoreboard -->"
SHORT = {
    "abs-postgres, 2pc": "MERGE by key in foreachBatch",
    "abs-kafka, 2pc": "Spark's Kafka sink",
    "abs-s3, 2pc": "Spark's file sink",
}
"""The rows of the README: a sink of ours, and the peer that it is compared with."""

_HEAD = """# Scoreboard

How many rows a second are *correct* when the job is killed? `make scoreboard` runs each of these Spark
jobs twice, as [`abs chaos`](../how-to/try-your-job.md) does: without kills, and with SIGKILL to all of
its processes, again and again. Then it compares the target with the input, row by row. This page is
made from `benchmarks/results/scoreboard.json`.

All of them get the same kills, each so many seconds after a start as the seed draws. Every second kill
then waits until the sink has written an epoch that Spark has not noted yet. The next run writes that
epoch again: what a sink doubles shows there.
"""
_AFTER = """- **sink**: with the commit, where the row is of an earlier run than the others.
- **rows/s**: without kills, from the first epoch that Spark has noted to the last.
- **under kills**: rows a second that are in the target once and unchanged, from the first epoch noted
  to the first one after the last kill, restarts included. With kills so close together a run is mostly
  starting: of Spark, and for our sinks of their commit process and register, some seconds more.
- **kills**: how many, and in brackets those that hit between the sink's write and Spark's note.
- **recovery**: seconds from a kill until Spark has noted an epoch again.
- **missing, doubled, wrong**: rows, after the run with kills. Of folders that only their own readers
  understand, what such a reader sees.
- **left**: unfinished writes, and files that no reader sees, at the end.
- **kept**: whether the rows are as the sink itself states; "too few kills": nothing was shown. Settings
  and statement are those of the page that its name leads to; the job is `benchmarks/scoreboard/job.py`.
"""
_COLUMNS = (
    "sink",
    "states",
    "rows/s",
    "under kills",
    "kills",
    "recovery p50, p99",
    "missing",
    "doubled",
    "wrong",
    "left",
    "kept",
)


def page(document: Mapping[str, Any]) -> str:
    """The whole table as a page of the docs."""
    facts = (f"- {name}: {value}" for name, value in document["environment"].items())
    lines = (
        _HEAD,
        *_table(document["rows"], "../../", document),
        "",
        _AFTER,
        _measured(document),
        "",
        *facts,
    )
    return "\n".join(lines) + "\n"


def in_readme(text: str, document: Mapping[str, Any]) -> str:
    """The README with these figures between its marks. Raises ValueError if it has no marks."""
    rows = {row["name"]: row for row in document["rows"]}
    size = f"{document['sizes']['rows']:,} rows an epoch"
    table = "\n".join(
        [
            f"| {size} | peer | ratio |",
            "| --- | --- | --- |",
            *(
                f"| {ours} | {peer} ({rows[peer]['states']}) | {_ratio(rows[ours], rows[peer])} |"
                for ours, peer in SHORT.items()
            ),
        ]
    )
    text, count = re.subn(
        f"{BEGIN}.*?{END}",
        lambda _: f"{BEGIN}\n\n{table}\n\n{_doors(rows)}\n\n{END}",
        text,
        flags=re.DOTALL,
    )
    if count != 1:
        raise ValueError(f"README.md has {count} times the marks of the scoreboard")
    return text


DOORS = {"abs_spark.epoch": "epoch: all three, 2pc", "format(...)": "abs-postgres, 2pc"}
"""The rows that compare the two doors: into three targets, and into one."""


_OF_DOORS = (("plain", ",.0f", " rows/s"), ("recovery_p50_s", ".1f", " s"))


def _doors(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Which one is quicker, by the rates without kills."""
    (first, one), (second, other) = sorted(
        ((door, rows[name]) for door, name in DOORS.items()),
        key=lambda pair: -float(pair[1]["plain"]),
    )
    rates, waits = (
        f"{format(one[of], how)}{unit} ({format(other[of], how)})" for of, how, unit in _OF_DOORS
    )
    return f"`{first}` (`{second}`) is the quicker door: {rates}, {waits} from kill to epoch."


def _ratio(ours: Mapping[str, Any], peer: Mapping[str, Any]) -> str:
    """Of the rates without kills."""
    return format(ours["plain"] / peer["plain"], ".2f")


def _measured(document: Mapping[str, Any]) -> str:
    sizes, cores = document["sizes"], int(document["environment"]["cores"])
    busy = float(document["load before"].split()[0]) > cores
    note = " The machine was busy: rates and recoveries say little." if busy else ""
    if sizes["kills"] < MANY_KILLS:
        note += (
            f" {sizes['kills']} kills for each are few: what a sink does wrong at a rare moment they "
            "need not show. [Situations](situations.md) makes such moments on purpose."
        )
    return (
        f"{sizes['epochs']} epochs of {sizes['rows']:,} rows, {sizes['kills']} x SIGKILL, one every "
        f"{sizes['every_s']:g} s, seed {sizes['seed']}; {document['started']} at commit "
        f"{document['environment']['commit']}, load {document['load before']} before and "
        f"{document['load after']} after.{note}"
    )


def _table(rows: list[Mapping[str, Any]], root: str, document: Mapping[str, Any]) -> Iterator[str]:
    yield f"| {' | '.join(_COLUMNS)} |"
    yield f"|{' --- |' * len(_COLUMNS)}"
    for row in rows:
        docs = row["docs"] if row["docs"].startswith("https:") else root + row["docs"]
        name = f"[{row['name']}]({docs})"
        commit = document["environment"]["commit"]
        if row.get("commit", commit) != commit:
            name += f" at {row['commit']}"
        if row["failed"]:
            yield f"| {name} | {row['states']} | {row['failed']} |{' |' * (len(_COLUMNS) - 3)}"
            continue
        recovery = ", ".join(_told(row[f"recovery_{p}_s"], ".1f") for p in ("p50", "p99"))
        wrong = (_told(row[what], ",") for what in ("missing", "doubled", "wrong", "left_behind"))
        cells = (
            name,
            row["states"],
            _told(row["plain"], ",.0f"),
            _told(row["killed"], ",.0f"),
            f"{row['kills']} ({_told(row['between'], 'd')})",
            recovery,
            *wrong,
            _KEPT[row["kept"]],
        )
        yield f"| {' | '.join(cells)} |"


MANY_KILLS = 8
"""With fewer for each contestant the page says that they are few."""
_KEPT = {True: "yes", False: "**no**", None: "too few kills"}


def _told(number: float | None, format_: str) -> str:
    return "-" if number is None else format(number, format_)
