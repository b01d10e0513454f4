"""Functions of the job that an option names: as ``module:function``, or by an entry point's name."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from abs_core.errors import OptionError

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
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise OptionError(
            f"The function {option}={name} cannot be imported: {error}.",
            remedy="install its module on the driver and every executor, or ship it (--py-files).",
        ) from error
    function: Callable[[Any], Any] = found
    return function


def _offered(name: str) -> EntryPoint | None:
    found = entry_points(group=GROUP, name=name)
    return next((entry for entry in found if _NAME.fullmatch(entry.value)), None)
