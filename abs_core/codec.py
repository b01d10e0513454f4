"""To and from text: what registers and messages keep. JSON, versioned, read strictly.

A reader refuses a version it does not know instead of guessing: a register written by a newer
release must not be half understood by an older one.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from abs_core.errors import CorruptionError
from abs_core.model import Committable, Decision, HandleName, JobState, Recent

VERSION = 1
T = TypeVar("T")


def committable_to_json(committable: Committable) -> dict[str, Any]:
    return {
        "handle": str(committable.handle),
        "rows": committable.rows,
        "digest": committable.digest,
        "extra": dict(committable.extra),
    }


def committable_from_json(value: object) -> Committable:
    """The committable that ``value`` holds.

    Raises:
        ValueError, KeyError: it is none.
    """
    fields = _of(dict, value)
    handle = HandleName.parse(_of(str, fields["handle"]))
    if handle is None:
        raise ValueError(f"not a handle name: {fields['handle']!r}")
    extra = {name: _of(str, text) for name, text in _of(dict, fields["extra"]).items()}
    return Committable(
        handle, _of(int, fields["rows"]), _of(str, fields["digest"]), tuple(sorted(extra.items()))
    )


def state_to_text(state: JobState) -> str:
    """The state as one line of JSON; equal states give equal text."""
    value = {
        "version": VERSION,
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
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def state_from_text(text: str, where: str) -> JobState:
    """The state that ``text`` holds.

    Args:
        where: names the cell, for the error.

    Raises:
        CorruptionError: it is not a state, or of a version this release does not know.
    """
    try:
        value = _of(dict, json.loads(text))
        if type(value["version"]) is not int or value["version"] != VERSION:
            raise ValueError(f"version {value['version']}; this release reads {VERSION}")
        return JobState(
            register=_of(str, value["register"]),
            job=_of(str, value["job"]),
            target=_of(str, value["target"]),
            lineage=_of(str, value["lineage"]),
            generation=_of(int, value["generation"]),
            run=_of(str, value["run"]),
            superseded=tuple(_of(str, run) for run in _of(list, value["superseded"])),
            frontier=None if value["frontier"] is None else _of(int, value["frontier"]),
            open=tuple(_decision_from_json(decision) for decision in _of(list, value["open"])),
            recent=tuple(_recent_from_json(recent) for recent in _of(list, value["recent"])),
            abandoned=tuple(_of(int, epoch) for epoch in _of(list, value["abandoned"])),
        )
    except (ValueError, KeyError) as error:
        raise CorruptionError(
            f"The register at {where} cannot be read: {error}.",
            remedy="do not delete it: it says what is committed. Restore it from a backup, or use "
            "the release of abs-sinks that wrote it.",
        ) from error


def _decision_to_json(decision: Decision) -> dict[str, Any]:
    return {
        "lineage": decision.lineage,
        "epoch": decision.epoch,
        "generation": decision.generation,
        "committables": [committable_to_json(c) for c in decision.committables],
    }


def _decision_from_json(value: object) -> Decision:
    fields = _of(dict, value)
    committables = tuple(committable_from_json(c) for c in _of(list, fields["committables"]))
    lineage, epoch = _of(str, fields["lineage"]), _of(int, fields["epoch"])
    return Decision(lineage, epoch, _of(int, fields["generation"]), committables)


def _recent_from_json(value: object) -> Recent:
    epoch, fingerprint, rows = _of(list, value)
    known = None if fingerprint is None else _of(str, fingerprint)
    return Recent(_of(int, epoch), known, _of(int, rows))


def _of(kind: type[T], value: object) -> T:
    """The value, which must be of exactly this type: true is no number."""
    if type(value) is not kind:
        raise ValueError(f"{value!r:.50} is not of type {kind.__name__}")
    return value
