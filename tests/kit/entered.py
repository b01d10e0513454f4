"""Which modules a call enters: of how many rooms a concern is."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]


def modules_entered(call: Callable[[], object]) -> set[str]:
    """Paths of the repository's modules of which a function ran, in this thread or one that it starts.

    What runs when a module is imported does not count.
    """
    entered = set[str]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_flags & 0x2:  # CO_NEWLOCALS: a function
            entered.add(frame.f_code.co_filename)

    threading.setprofile(note)
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    own = f"{ROOT}/"
    return {path.removeprefix(own) for path in entered if path.startswith(own)}
