"""Logs that no job can have written: a real log with a line dropped, swapped or forged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from abs_core.model import HandleName
from tests.spec.traces import CHECKED, Line

Forged = tuple[str, list[Line]]


def all_of(log: Sequence[Line]) -> list[Forged]:
    """What was done, and the log that came of it."""
    lines = [line for line in log if line["event"] in CHECKED]
    return [*_dropped(lines), *_swapped(lines), *_forged(lines)]


def _dropped(lines: list[Line]) -> Iterator[Forged]:
    """Only what was surely told: not the last line of a process that was killed."""
    killed = [n for n, line in enumerate(lines) if line["event"] in ("Killed", "Gone")]
    last = killed[-1] if killed else -1
    named = {name for line in lines if line["event"] == "Decided" for name in line["handles"]}
    for n, line in enumerate(lines):
        later = lines[n + 1 :]
        surely = {
            "Started": n > last,
            "PreCommitted": line.get("handle") in named,
            "Decided": any(_is(one, "Committed", line["epoch"]) for one in later)
            if line["event"] == "Decided"
            else False,
            "Committed": n > last,
        }
        if surely.get(line["event"], False):
            yield f"line {n + 1} ({line['event']}) is dropped", [*lines[:n], *later]


SWAPPED = {("PreCommitted", "Decided"), ("Decided", "Committed"), ("Committed", "PreCommitted")}


def _swapped(lines: list[Line]) -> Iterator[Forged]:
    """Two neighbours, of which the first is a cause of the second."""
    for n, (one, other) in enumerate(pairwise(lines)):
        kinds = one["event"], other["event"]
        if kinds in SWAPPED and _is_cause(one, other):
            both = " and ".join(kinds)
            yield f"line {n + 1}: {both} are swapped", [*lines[:n], other, one, *lines[n + 2 :]]


def _is_cause(one: Line, other: Line) -> bool:
    """Whether they are of one epoch, or of one and the next; a run that was overtaken tells late."""
    match one["event"], other["event"]:
        case "PreCommitted", "Decided":
            return one["handle"] in other["handles"]
        case "Committed", "PreCommitted":
            return bool(other["epoch"] == one["epoch"] + 1)
    return True


def _forged(lines: list[Line]) -> Iterator[Forged]:
    prepared = {line["handle"] for line in lines if line["event"] == "PreCommitted"}
    for n, line in enumerate(lines):
        for what, forged in _changed(line, prepared):
            yield f"line {n + 1}: {what}", [*lines[:n], forged, *lines[n + 1 :]]
        if line["event"] in ("PreCommitted", "Decided", "Committed"):
            yield f"line {n + 1}: it is there twice", [*lines[: n + 1], *lines[n:]]
        if line["event"] == "Started":
            told = f"line {n + 1}: another task has started the run, too"
            yield told, [*lines[: n + 1], {**line, "pid": 1}, *lines[n + 1 :]]
        if line["event"] == "Decided":
            swept: dict[str, Any] = {**line, "event": "Swept", "pid": 1}
            told = f"line {n + 1}: what was decided is swept after it"
            yield told, [*lines[: n + 1], swept, *lines[n + 1 :]]
            finished = {**line, "event": "RolledForward", "handles": 1, "pid": 1}
            told = f"line {n + 1}: an epoch that nobody decided is rolled forward"
            other = {**finished, "epoch": line["epoch"] + 1}
            yield told, [*lines[: n + 1], other, *lines[n + 1 :]]


def _changed(line: Line, prepared: set[str]) -> Iterator[tuple[str, Line]]:
    match line["event"]:
        case "Decided":
            if len(line["handles"]) > 1:
                yield "a handle is left out", {**line, "handles": line["handles"][1:]}
            yield "another generation decides", {**line, "generation": line["generation"] + 1}
            yield "another epoch is decided", {**line, "epoch": line["epoch"] + 1}
            names = [HandleName.parse(name) for name in line["handles"]]
            stolen = [str(_other(name)) for name in names if name is not None]
            # A handle that compose made has a name of its own, and no log says which one.
            if prepared.issuperset(line["handles"]):
                yield "handles that nobody pre-committed are decided", {**line, "handles": stolen}
        case "Committed":
            yield "another epoch is committed", {**line, "epoch": line["epoch"] + 1}
        case "Left":
            yield "the register has decided more", {**line, "frontier": (line["frontier"] or 0) + 1}
            yield "one more run has started", {**line, "generation": line["generation"] + 1}


def _other(name: HandleName) -> HandleName:
    own = name.register, name.job, name.generation, name.epoch, name.partition
    return HandleName(*own, "0f0f0f0f")


def _is(line: Line, event: str, epoch: int) -> bool:
    return line["event"] == event and line.get("epoch") == epoch
