"""Functions that return passwords, as a job may name them: ``passwordfunction=module:function``."""

from __future__ import annotations

import os
import threading
from pathlib import Path

asked: list[dict[str, str]] = []
"""The parameters of each call in this process."""


def of_file(parameters: dict[str, str]) -> str:
    """What stands in the file that ``ABS_TEST_PASSWORD`` names now."""
    asked.append(parameters)
    return Path(os.environ["ABS_TEST_PASSWORD"]).read_text()


def failing(parameters: dict[str, str]) -> str:
    raise LookupError("no metadata service")


answers = threading.Event()


def hanging(parameters: dict[str, str]) -> str:
    assert answers.wait(60)
    return "late"


def slow_itself(parameters: dict[str, str]) -> str:
    raise TimeoutError("the function's own")


def nothing(parameters: dict[str, str]) -> None:
    return None
