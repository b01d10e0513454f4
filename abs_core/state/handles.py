"""State handles to and from JSON, for the completion record."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

from abs_core.state.contracts import BlobRef, StateHandle
from abs_core.state.keygroups import GroupRange
from abs_core.strictjson import HIGHEST, of, text, whole


def handle_to_json(handle: StateHandle) -> tuple[Any, ...]:
    return astuple(handle)


def handle_from_json(value: object) -> StateHandle:
    """Raises ``ValueError`` for anything else."""
    format_, checkpoint, groups, states, blobs, extra = of(list, value)
    start, stop = of(list, groups)
    return StateHandle(
        text(format_),
        whole(checkpoint, 0, HIGHEST),
        GroupRange(whole(start), whole(stop)),
        tuple(_pair(one) for one in of(list, states)),
        tuple(blob_from_json(one) for one in of(list, blobs)),
        tuple(_pair(one) for one in of(list, extra)),
    )


def blob_from_json(value: object) -> BlobRef:
    """Raises ``ValueError`` for anything else."""
    key, size, digest = of(list, value)
    return BlobRef(text(key), whole(size), text(digest))


def _pair(value: object) -> tuple[str, str]:
    name, said = of(list, value)
    return text(name), text(said)
