"""A plugin of pytest: notes which ``raise`` of the coordinator's modules a test has reached.

    REACHED=FILE python -m pytest -p tests.core.raises_reached TESTS

The file gets a JSON list of [module, line, test].
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

TRACED = ("/abs_core/coordinator/", "/abs_core/registers/")
_reached: set[tuple[str, int, str]] = set()


def _trace(frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
    return _inside if any(part in frame.f_code.co_filename for part in TRACED) else None


def _inside(frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
    if event == "exception":
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0].partition("[")[0]
        _reached.add((frame.f_code.co_filename, frame.f_lineno, test))
    return _inside


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    threading.settrace(_trace)
    sys.settrace(_trace)
    try:
        return (yield)
    finally:
        sys.settrace(None)
        threading.settrace(None)


def pytest_sessionfinish() -> None:
    Path(os.environ["REACHED"]).write_text(json.dumps(sorted(_reached)))
