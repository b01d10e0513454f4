"""State handles to and from JSON, for the completion record."""

from __future__ import annotations

from typing import Any

from abs_core.errors import CorruptionError
from abs_core.state.contracts import BlobRef, StateHandle
from abs_core.state.keygroups import GroupRange


def blob_to_json(ref: BlobRef) -> list[Any]:
    return [ref.key, ref.size, ref.digest]


def blob_from_json(value: Any) -> BlobRef:
    """Raises ``CorruptionError`` where ``value`` is none."""
    try:
        key, size, digest = value
        return BlobRef(str(key), int(size), str(digest))
    except (TypeError, ValueError) as error:
        raise CorruptionError(f"{value!r} is no reference to a blob.") from error


def handle_to_json(handle: StateHandle) -> dict[str, Any]:
    return {
        "format": handle.format,
        "checkpoint": handle.checkpoint,
        "groups": [handle.groups.start, handle.groups.stop],
        "states": [list(state) for state in handle.states],
        "blobs": [blob_to_json(ref) for ref in handle.blobs],
        "extra": [list(pair) for pair in handle.extra],
    }


def handle_from_json(value: Any) -> StateHandle:
    """Raises ``CorruptionError`` where ``value`` is none."""
    try:
        return StateHandle(
            str(value["format"]),
            int(value["checkpoint"]),
            GroupRange(*map(int, value["groups"])),
            tuple((str(name), str(shape)) for name, shape in value["states"]),
            tuple(map(blob_from_json, value["blobs"])),
            tuple((str(name), str(text)) for name, text in value["extra"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptionError(f"A state handle can't be read: {error!r}.") from error
