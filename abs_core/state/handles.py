"""State handles to and from JSON, for the completion record."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

from abs_core.errors import CorruptionError
from abs_core.state.contracts import BlobRef, StateHandle
from abs_core.state.keygroups import GroupRange


def handle_to_json(handle: StateHandle) -> tuple[Any, ...]:
    return astuple(handle)


def handle_from_json(value: Any) -> StateHandle:
    """Raises ``CorruptionError`` where ``value`` is none."""
    try:
        format_, checkpoint, groups, states, blobs, extra = value
        return StateHandle(
            str(format_),
            int(checkpoint),
            GroupRange(*groups),
            tuple((name, shape) for name, shape in states),
            tuple(BlobRef(*ref) for ref in blobs),
            tuple((name, text) for name, text in extra),
        )
    except (TypeError, ValueError) as error:
        raise CorruptionError(f"A state handle can't be read: {error!r}.") from error
