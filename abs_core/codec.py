"""To and from text: what registers and messages keep. JSON, versioned, read strictly.

A reader refuses a version it does not know instead of guessing: a register written by a newer
release must not be half understood by an older one.
"""

from __future__ import annotations

import json
from typing import Any

from abs_core.errors import CorruptionError
from abs_core.model import Committable, Decision, HandleName, JobState, Recent

VERSION = 1


def committable_to_json(committable: Committable) -> dict[str, Any]:
    return {
        "handle": str(committable.handle),
        "rows": committable.rows,
        "digest": committable.digest,
        "extra": dict(committable.extra),
    }


def committable_from_json(value: dict[str, Any]) -> Committable:
    handle = HandleName.parse(value["handle"])
    if handle is None:
        raise ValueError(f"not a handle name: {value['handle']!r}")
    return Committable(
        handle, value["rows"], value["digest"], tuple(sorted(value["extra"].items()))
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
        value = json.loads(text)
        if value["version"] != VERSION:
            raise ValueError(f"version {value['version']}; this release reads {VERSION}")
        return JobState(
            register=value["register"],
            job=value["job"],
            target=value["target"],
            lineage=value["lineage"],
            generation=value["generation"],
            run=value["run"],
            superseded=tuple(value["superseded"]),
            frontier=value["frontier"],
            open=tuple(_decision_from_json(decision) for decision in value["open"]),
            recent=tuple(Recent(*recent) for recent in value["recent"]),
            abandoned=tuple(value["abandoned"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
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


def _decision_from_json(value: dict[str, Any]) -> Decision:
    committables = tuple(committable_from_json(c) for c in value["committables"])
    return Decision(value["lineage"], value["epoch"], value["generation"], committables)
