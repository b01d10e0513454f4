"""What the demo tells of its kills."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def planned(kills: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The kills without those that missed the moment after ``commit()``, which are repeated."""
    hit = "committed"
    return [kill for kill in kills if kill["wanted"] != hit or kill["found"] == hit]
