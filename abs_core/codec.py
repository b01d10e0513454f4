"""Versioned JSON of the values that registers and messages store.

A reader refuses an unknown (newer) version and reads every older one; defaults for fields that older
versions lack are here.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from typing import Any

from abs_core.errors import CorruptionError
from abs_core.model import (
    Committable,
    Course,
    Dead,
    Decision,
    HandleName,
    JobState,
    NamedSink,
    NotedToken,
    Recent,
    Shown,
)
from abs_core.release import RELEASE
from abs_core.rowdigest import is_row_digest, read_row_digest
from abs_core.strictjson import MAX_NUMBER, fields, of, parse, reading, text, version, whole

VERSION = 3
"""1: up to 315a560. 2: adds fields that a release of version 1 would drop with its first write, so it
must refuse. 3: the same for a state with several sinks."""

_WITHOUT_SINKS = 2

# The field "release" needs no version: a release that does not know it drops it with its first write,
# and then it is that release which wrote the record. Releases before 0.2.0 wrote none.


def committable_to_json(committable: Committable) -> dict[str, Any]:
    value = {
        "handle": str(committable.handle),
        "rows": committable.rows,
        "digest": committable.digest,
        "extra": dict(committable.extra),
    }
    return value | {"release": committable.release} if committable.release else value


def committable_from_json(value: object) -> Committable:
    """Inverse of ``committable_to_json``.

    Raises:
        ValueError: ``value`` is not a committable.
    """
    members = fields(value)
    handle = HandleName.read(members["handle"])
    extra = {name: text(said) for name, said in fields(members["extra"]).items()}
    digest, by = text(members["digest"]), text(members.get("release", ""))
    return Committable(handle, whole(members["rows"]), digest, tuple(sorted(extra.items())), by)


def state_to_text(state: JobState) -> str:
    """The state as one line of JSON, which names this release."""
    value = {
        "version": VERSION if state.sinks else _WITHOUT_SINKS,
        "release": RELEASE,
        "register": state.register,
        "job": state.job,
        "target": state.target,
        "lineage": state.lineage,
        "generation": state.generation,
        "run": state.run,
        "superseded": state.superseded,
        "frontier": state.frontier,
        "open": [_decision_to_json(decision) for decision in state.open],
        "recent": [[recent.epoch, recent.fingerprint, recent.rows] for recent in state.recent],
        "abandoned": state.abandoned,
    }
    # A release that does not know the field drops it with its first write: only the limit forgets.
    if dead := [[r.epoch, d.sink, d.rows, d.dead] for r in state.recent for d in r.dead]:
        value["dead"] = dead
    # Likewise: then nothing tells of a target that went back, until the next epoch is finished.
    noted = (*state.older, *state.recent)
    if shown := [[r.epoch, s.sink, s.rows, s.mark] for r in noted for s in r.shown]:
        value["shown"] = shown
    # Likewise: then less can be compared.
    if full := [[r.epoch, s.sink, s.full] for r in noted for s in r.shown if s.full]:
        value["full"] = full
    # Likewise: then readers are told less, see ``abs epochs``.
    courses = ((r.epoch, r.course) for r in state.recent if r.course is not None)
    if course := [[n, c.input, c.decided, c.finished, c.sinks] for n, c in courses]:
        value["course"] = course
    if state.checkpoint is not None:
        value["checkpoint"] = state.checkpoint  # left out where unknown, as releases before it did
    if state.tokens:
        value["tokens"] = [[t.token, t.register, t.generation, t.at] for t in state.tokens]
    if state.sinks:
        value["sinks"] = [[s.number, s.name, s.target, s.since, s.until] for s in state.sinks]
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def state_from_text(content: str, where: str, job: str | None = None) -> JobState:
    """Inverse of ``state_to_text``.

    Args:
        where: names the cell in errors.
        job: whose cell it is, where that is known.

    Raises:
        CorruptionError: it is not a state, its version is unknown, or it is another job's.
    """
    with reading_register(where, job):
        value = parse(content)
    return state_from_json(value, where, job)


def state_from_json(value: object, where: str, job: str | None = None) -> JobState:
    """``state_from_text`` for JSON that ``strictjson.parse`` has parsed."""
    with reading_register(where, job):
        state = _state_from_json(value)
    if job not in (None, state.job):
        raise CorruptionError(
            f"The register at {where} belongs to job {state.job!r}.",
            job=job,
            remedy="it was copied or renamed: put it back under its own name.",
        )
    return state


def reading_register(where: str, job: str | None = None) -> AbstractContextManager[None]:
    """Raise ``CorruptionError`` for a ``ValueError``: the register at ``where`` is unreadable."""
    remedy = "do not delete it: it says what is committed. Restore it from a backup"
    return reading(f"The register at {where}", remedy, job)


def _state_from_json(value: object) -> JobState:
    document = fields(value)
    version(document["version"], VERSION, by=document.get("release"))
    text(document.get("release", ""))
    frontier, shown = document["frontier"], _shown_from_json(document)
    recent = _recents_from_json(document, shown)
    return JobState(
        register=text(document["register"]),
        job=text(document["job"]),
        target=text(document["target"]),
        lineage=text(document["lineage"]),
        generation=_number(document["generation"]),
        run=text(document["run"]),
        superseded=tuple(text(run) for run in of(list, document["superseded"])),
        frontier=None if frontier is None else _number(frontier),
        open=tuple(_decision_from_json(decision) for decision in of(list, document["open"])),
        recent=recent,
        # Epochs that are not among the recent ones; a release that does not know them ignores them.
        older=tuple(
            Recent(epoch, None, one.rows, shown=(one,))
            for epoch, several in shown.items()
            if epoch not in {record.epoch for record in recent}
            for one in several
        ),
        abandoned=tuple(_number(epoch) for epoch in of(list, document["abandoned"])),
        # Releases before the birth certificate did not note it.
        checkpoint=text(document["checkpoint"]) if "checkpoint" in document else None,
        tokens=_tokens_from_json(document["tokens"]) if "tokens" in document else (),
        sinks=_sinks_from_json(document["sinks"]) if "sinks" in document else (),
    )


def _decision_to_json(decision: Decision) -> dict[str, Any]:
    return {
        "lineage": decision.lineage,
        "epoch": decision.epoch,
        "generation": decision.generation,
        "committables": [committable_to_json(c) for c in decision.committables],
    }


def _decision_from_json(value: object) -> Decision:
    members = fields(value)
    committables = tuple(committable_from_json(c) for c in of(list, members["committables"]))
    lineage, epoch = text(members["lineage"]), _number(members["epoch"])
    return Decision(lineage, epoch, _number(members["generation"]), committables)


def _shown_from_json(document: dict[str, Any]) -> dict[int, tuple[Shown, ...]]:
    shown: dict[int, tuple[Shown, ...]] = {}
    full: dict[tuple[int, int], str] = {}
    for entry in of(list, document["full"]) if "full" in document else ():
        number, sink, mark = of(list, entry)
        full[_number(number), whole(sink)] = text(mark)
    for entry in of(list, document["shown"]) if "shown" in document else ():
        number, sink, rows, mark = of(list, entry)
        place = epoch, _ = _number(number), whole(sink)
        one = Shown(whole(sink), whole(rows), text(mark), full.get(place, ""))
        shown[epoch] = (*shown.get(epoch, ()), one)
    return shown


def _recents_from_json(
    document: dict[str, Any], shown: dict[int, tuple[Shown, ...]]
) -> tuple[Recent, ...]:
    recents = [_recent_from_json(recent) for recent in of(list, document["recent"])]
    dead: dict[int, list[Dead]] = {}
    for entry in of(list, document["dead"]) if "dead" in document else ():
        epoch, sink, rows, count = of(list, entry)
        dead.setdefault(_number(epoch), []).append(Dead(whole(sink), whole(rows), whole(count)))
    courses: dict[int, Course] = {}
    for entry in of(list, document["course"]) if "course" in document else ():
        epoch, asked, decided, finished, numbers = of(list, entry)
        sinks = tuple(map(whole, of(list, numbers)))
        courses[_number(epoch)] = Course(_moment(asked), _moment(decided), _moment(finished), sinks)
    return tuple(
        replace(
            record,
            dead=tuple(dead.get(record.epoch, ())),
            shown=shown.get(record.epoch, ()),
            course=courses.get(record.epoch),
        )
        for record in recents
    )


def _moment(value: object) -> int | None:
    return None if value is None else whole(value)


def _recent_from_json(value: object) -> Recent:
    epoch, fingerprint, rows = of(list, value)
    digest = None if fingerprint is None else text(fingerprint)
    if digest is not None and is_row_digest(digest):
        read_row_digest(digest)  # refuse a damaged one here, before a rule reads it
    return Recent(_number(epoch), digest, whole(rows))


def _tokens_from_json(value: object) -> tuple[NotedToken, ...]:
    tokens = tuple(_token_from_json(token) for token in of(list, value))
    if not tokens:
        raise ValueError("an empty list of tokens, which is never written")
    return tokens


def _token_from_json(value: object) -> NotedToken:
    token, register, generation, at = of(list, value)
    moment = datetime.fromisoformat(text(at))
    if moment.tzinfo is None:
        raise ValueError(f"{text(at)[:40]!a} has no time zone")
    return NotedToken(text(token), text(register), _number(generation), text(at))


def _sinks_from_json(value: object) -> tuple[NamedSink, ...]:
    sinks = tuple(_sink_from_json(sink) for sink in of(list, value))
    if not sinks or [sink.number for sink in sinks] != list(range(len(sinks))):
        raise ValueError("sinks that are not numbered from 0")
    return sinks


def _sink_from_json(value: object) -> NamedSink:
    number, name, target, since, until = of(list, value)
    last = None if until is None else _number(until)
    return NamedSink(_number(number), text(name), text(target), _number(since), last)


def _number(value: object) -> int:
    """A generation or an epoch."""
    return whole(value, 0, MAX_NUMBER)
