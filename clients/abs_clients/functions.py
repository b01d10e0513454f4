"""Functions of the job that an option names: as ``module:function``, or by an entry point's name."""

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from abs_core.errors import OptionError

T = TypeVar("T")

GROUP = "abs_sinks.tokens"
"""The group of entry points by which a package offers functions for tokens and passwords."""

NAMED = f"module:function, or the name of an installed entry point of the group {GROUP}"

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def is_function_name(text: str) -> bool:
    """Whether the text is ``module:function``, or an entry point of this machine; imports nothing."""
    return _NAME.fullmatch(text) is not None or _offered(text) is not None


def function_named(option: str, name: str) -> Callable[[Any], Any]:
    """The function; its module is imported.

    Raises:
        OptionError: it cannot be imported on this machine.
    """
    module, _, path = (name if (entry := _offered(name)) is None else entry.value).partition(":")
    try:
        target: Any = importlib.import_module(module)
        for part in path.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError) as error:
        raise OptionError(
            f"The function {option}={name} cannot be imported: {error}.",
            remedy="install its module on the driver and every executor, or ship it (--py-files).",
        ) from error
    function: Callable[[Any], Any] = target
    return function


class StillRunningError(Exception):
    """A function has not returned in time. Not a TimeoutError, which functions raise themselves."""


class Answer(Generic[T]):
    """What a function of the job returns, called at once on a thread of its own: it may hang.

    Args:
        name: of the thread, which ends with the process if the function never does.
    """

    def __init__(self, call: Callable[[], T], name: str) -> None:
        self._call = call
        self._there = threading.Event()
        self._found: T
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            self._found = self._call()
        except BaseException as error:  # noqa: BLE001 - raised by who waits
            self._error = error
        self._there.set()

    def within(self, seconds: float) -> T:
        """The function's result, once; raises its error, or StillRunningError after ``seconds``."""
        if not self._there.wait(seconds):
            raise StillRunningError
        if self._error is not None:
            error, self._error = self._error, None
            try:
                raise error
            finally:
                # Its traceback refers to this frame: only the garbage collector would free both.
                del error
        return self._found


def _offered(name: str) -> EntryPoint | None:
    entries = entry_points(group=GROUP, name=name)
    return next((entry for entry in entries if _NAME.fullmatch(entry.value)), None)
