"""The sinks; ``abs_sinks.door`` finds them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def face(package: str, **modules: str) -> Callable[[str], Any]:
    """``__getattr__`` of a package that imports each of its names when it is used.

    So a sink's door is found where the sink's libraries are not installed.

    Args:
        modules: the module of each name.
    """

    def of(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return of
