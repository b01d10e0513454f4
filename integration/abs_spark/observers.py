"""Observers of this process: those of ``abs_spark.listener``, and those that ``ABS_OBSERVE`` names.

``ABS_OBSERVE=module:function,...`` is read in each Python process that writes, also in those that Spark
starts. A function takes no arguments, is called once in a process, and returns an observer, which is
called with each event (``abs_core.events``).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from abs_core.errors import ConfigError

VARIABLE = "ABS_OBSERVE"

Told = Callable[[Any], object]
"""Called with each event, perhaps from several threads at once. It should return soon."""

added: list[Told] = []
"""Observers that this program has added, besides those of ``ABS_OBSERVE``."""

_log = logging.getLogger("abs_spark.start")


@cache
def told() -> tuple[Told, ...]:
    """The observers that the environment names; they are made at the first call.

    Raises:
        ConfigError: one cannot be made.
    """
    names = filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(",")))
    return tuple(map(_made, names))


def tell(event: object) -> None:
    """Tell every observer. An observer that raises is logged: the job goes on."""
    for observe in (*told(), *added):
        tell_one(observe, event)


def tell_one(observe: Told, event: object) -> None:
    """Tell one; as ``tell``."""
    try:
        observe(event)
    except Exception:  # noqa: BLE001 - it must not end what is committed already
        _log.exception("an observer failed on %s; the job goes on", type(event).__name__)


def _made(name: str) -> Told:
    module, _, function = name.partition(":")
    try:
        made = getattr(import_module(module), function)()
    except Exception as error:
        raise ConfigError(
            f"{VARIABLE} names {name}, which gives no observer: {type(error).__name__}: {error}.",
            remedy="write module:function, of a module that Spark's Python can import (PYTHONPATH), "
            "with a function that takes no arguments and returns one that takes an event.",
        ) from error
    if not callable(made):
        raise ConfigError(
            f"{VARIABLE} names {name}, which returns a {type(made).__name__}, not an observer.",
            remedy="return a function that takes an event.",
        )
    observe: Told = made
    return observe
