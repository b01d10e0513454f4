"""Functions of the job that an option names as ``module:function``."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

from abs_core.errors import OptionError

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def is_function_name(text: str) -> bool:
    """Whether the text is ``module:function``; nothing is imported."""
    return _NAME.fullmatch(text) is not None


def function_named(option: str, name: str) -> Callable[[Any], Any]:
    """The function; its module is imported.

    Raises:
        OptionError: it cannot be imported on this machine.
    """
    module, _, path = name.partition(":")
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
