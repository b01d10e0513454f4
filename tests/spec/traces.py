"""Event logs as TLA+ values: are they behaviours of the specification? See ``spec/trace.tla``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from abs_core.model import NO_EPOCH, HandleName, JobState
from tests.kit import tlc

Line = Mapping[str, Any]

KILLED = {"event": "Killed"}
"""Every process that had written to the log was killed."""

CHECKED = (
    *("Started", "PreCommitted", "Decided", "Committed", "Skipped", "RolledForward"),
    *("Swept", "Abandoned", "Killed", "Gone", "Left"),
)
"""The other events say nothing of the protocol."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the specification is told of a job.

    Args:
        cocommits: rows and register change in one transaction.
        composes: a decision names what was composed of the tasks' handles.
        gaps: the engine numbers epochs as it likes, and rolls forward before its tasks begin.
        bounded: the target holds handles under bounded names (``HELD_AS``), by which they are swept.
        stays: what no decision names is not swept: the next try of the epoch upserts the same keys, or
            readers go by a record of the winners.
    """

    cocommits: bool = False
    composes: bool = False
    gaps: bool = False
    bounded: bool = False
    stays: bool = False


SHAPES = {
    "postgres-2pc": Shape(),
    "postgres-wal": Shape(cocommits=True),
    "postgres-idempotent": Shape(cocommits=True, stays=True),
    "kafka-2pc": Shape(bounded=True),
    "kafka-wal": Shape(cocommits=True),
    "kafka-idempotent": Shape(cocommits=True, stays=True),
    "s3-2pc": Shape(),
    "s3-wal": Shape(composes=True),
    "s3-idempotent": Shape(cocommits=True),
    "delta-2pc": Shape(),
    "iceberg-2pc": Shape(),
    "three-2pc": Shape(bounded=True),
    "embedded-2pc": Shape(gaps=True),
}
"""Of a job in Spark, by what it writes to, and of one in the embedded runtime."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A log, and what it is a log of."""

    lines: Sequence[Line]
    shape: Shape


def left(state: JobState) -> Line:
    """The last line: what the register holds when all is done, and nothing is in doubt."""
    assert not state.open, "an epoch is decided, and not finished"
    return {"event": "Left", "generation": state.generation, "frontier": state.frontier}


def gone(generation: int) -> Line:
    """All processes of this run have ended, while others may go on."""
    return {"event": "Gone", "generation": generation}


def add(log: Path, line: Line) -> None:
    """Write a line of the test's own."""
    with log.open("a") as file:
        file.write(json.dumps(line) + "\n")


def read(log: Path) -> list[Line]:
    """All lines, in the order in which they were written."""
    return [json.loads(line) for line in log.read_text().splitlines()]


class _Names:
    """Handles as <<run, epoch, slot, attempt>>; what is composed of the tasks' is slot 0."""

    def __init__(self, lines: Sequence[Line], shape: Shape) -> None:
        self.told = {line["handle"] for line in lines if line["event"] == "PreCommitted"}
        named = {name for line in lines for name in _named(line)}
        self.composed = named - self.told if shape.composes else set()
        self.untold = named - self.told - self.composed
        self.early = set(_after_a_newer_run(lines))
        self._slots: dict[int, int] = {}
        self._tries: dict[tuple[int, int, int], list[str]] = {}
        for name in sorted(self.told | self.untold):
            self(name)

    def __call__(self, text: str) -> str:
        name = HandleName.parse(text)
        assert name is not None, f"{text} is no handle"
        if text in self.composed:
            return f"<<{name.generation}, {name.epoch}, 0, 1>>"
        slot = self._slots.setdefault(name.partition, len(self._slots) + 1)
        tries = self._tries.setdefault((name.generation, name.epoch, name.partition), [])
        if text not in tries:
            tries.append(text)
        return f"<<{name.generation}, {name.epoch}, {slot}, {tries.index(text) + 1}>>"

    def all_of(self, texts: Iterable[str]) -> str:
        return _set(self(text) for text in texts)

    @property
    def slots(self) -> int:
        return len(self._slots)


def _after_a_newer_run(lines: Sequence[Line]) -> Iterator[str]:
    """Handles whose run was overtaken before they were told."""
    newest = 0
    for line in lines:
        if line["event"] == "Started":
            newest = max(newest, line["generation"])
        if line["event"] == "PreCommitted":
            name = HandleName.parse(line["handle"])
            if name is not None and name.generation < newest:
                yield line["handle"]


def _named(line: Line) -> list[str]:
    found = line.get("handles")
    return list(found) if isinstance(found, list) else []


def module(traces: Sequence[Trace]) -> str:
    """The module ``logs``, with the worlds and the logs in this order."""
    made = [_trace(trace) for trace in traces]
    worlds, logs = ",\n  ".join(w for w, _ in made), ",\n  ".join(log for _, log in made)
    return (
        f"---- MODULE logs ----\nEXTENDS Integers\nLogWorlds == <<\n  {worlds}>>\n"
        f"Logs == <<\n  {logs}>>\n====\n"
    )


def _trace(trace: Trace) -> tuple[str, str]:
    lines = checked(trace)
    names, shape = _Names(lines, trace.shape), trace.shape
    records = [_line(line, names) for line in lines]
    runs, killed = 0, 0
    ended = {line["generation"] for line in lines if line["event"] == "Gone"}
    for number, line in enumerate(lines):
        if line["event"] == "Killed":
            killed = max(runs, _next_run(lines[number + 1 :]) - 1)
        runs = max([runs, *_generations(line)])
    epochs = max([0, *(line.get("epoch", 0) for line in lines)]) + 1
    slots = ", ".join(f"{{{n + 1}}}" for n in range(max(1, names.slots)))
    run = (
        f'[lineage |-> "A", content |-> "a", slots |-> <<{slots}>>, tries |-> 1, adopts |-> FALSE, '
        "first |-> 0, after |-> 0]"
    )
    fields = {
        "name": '"log"',
        "bug": '"none"',
        "runs": f"<<{', '.join([run] * max(1, runs))}>>",
        "epochs": epochs,
        "cocommits": _flag(shape.cocommits),
        "composes": _flag(shape.composes),
        "silent": _flag(shape.composes or shape.bounded or shape.stays),
        "gaps": _flag(shape.gaps),
        "joins": "FALSE",
        "aborts": "TRUE",
        "ends": "FALSE",
        "stubborn": "FALSE",
        "killed": _set(map(str, {*range(1, killed + 1), *ended})),
        "gone": _set(map(str, ended)),
        "told": names.all_of(names.told),
        "untold": names.all_of(names.untold),
        "early": names.all_of(names.early),
    }
    return _record(fields), f"<<{', '.join(records)}>>"


def _next_run(lines: Sequence[Line]) -> int:
    """The generation of the run that comes next: those below it were killed, told or not."""
    for line in lines:
        if line["event"] == "Killed":
            break
        if line["event"] == "Started":
            return int(line["generation"])
    return 0


def checked(trace: Trace) -> list[Line]:
    """The lines that are checked; a bounded name does not tell which handle was swept."""
    lines = []
    for line in trace.lines:
        if line["event"] == "Swept" and trace.shape.bounded:
            names = [
                n for n in line["handles"] if (h := HandleName.parse(n)) and h.epoch != NO_EPOCH
            ]
            if not names:
                continue
            line = {**line, "handles": names}
        if line["event"] in CHECKED:
            lines.append(line)
    return lines


def _generations(line: Line) -> list[int]:
    texts = [*_named(line), *([line["handle"]] if "handle" in line else [])]
    names = [HandleName.parse(text) for text in texts]
    mine = [line["generation"]] if "generation" in line and line["event"] != "Left" else []
    return [*mine, *(name.generation for name in names if name is not None)]


def _line(line: Line, names: _Names) -> str:
    # Lines of the test's own have no process; 0 is no process either.
    fields: dict[str, object] = {"event": f'"{line["event"]}"', "pid": line.get("pid", 0)}
    for key in ("epoch", "frontier"):
        if key in line:
            fields[key] = -1 if line[key] is None else line[key]
    match line["event"]:
        case "Started":
            fields |= {"run": line["generation"], "minted": _flag(line["minted"])}
        case "PreCommitted":
            handle = names(line["handle"])
            fields |= {"run": handle[2:].partition(",")[0], "handle": handle}
        case "Decided":
            fields |= {"run": line["generation"], "handles": names.all_of(line["handles"])}
        case "Abandoned" | "Gone":
            fields |= {"run": line["generation"]}
        case "Swept":
            fields |= {"handles": names.all_of(line["handles"])}
        case "Committed" | "RolledForward":
            fields |= {"handles": line["handles"]}
        case "Left":
            fields |= {"generation": line["generation"]}
    return _record(fields)


def _record(fields: Mapping[str, object]) -> str:
    return "[" + ", ".join(f"{key} |-> {value}" for key, value in fields.items()) + "]"


def _set(members: Iterable[str]) -> str:
    return "{" + ", ".join(sorted(set(members))) + "}"


def _flag(value: bool) -> str:
    return "TRUE" if value else "FALSE"


def longest(traces: Sequence[Trace], folder: Path) -> list[tuple[int, int]]:
    """How many lines of each log are read by some behaviour of the specification, and of how many.

    Args:
        folder: for TLC's files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = tlc.check("trace", "trace", folder, files={"logs.tla": module(traces)})
    best = {int(number): (int(done), int(of)) for what, number, done, of in found.printed}
    print(f"{len(traces)} logs: {found}")
    return [best[number] for number in range(1, len(traces) + 1)]


def check_accepted(trace: Trace, folder: Path) -> None:
    """Assert that some behaviour of the specification has this log."""
    ((done, of),) = longest([trace], folder)
    lines = checked(trace)
    assert done == of, (
        f"no behaviour of the specification has this log: line {done + 1} of {of} cannot be read: "
        f"{lines[done]}"
    )
