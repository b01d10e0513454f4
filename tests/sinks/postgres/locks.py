"""Tells who waited for a lock from who was slow, by a timeout longer than a busy machine is slow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from abs_sinks.postgres import PostgresSink
from abs_sinks.postgres.testing import TableHarness
from abs_testing import SCHEMA

LONG = 60.0


@contextmanager
def nobody_waits(harness: TableHarness) -> Iterator[None]:
    """New sinks of the harness wait so long for a lock that the block would show it."""
    harness.options = replace(harness.options, locktimeout=LONG)
    harness.new_sink = partial(
        PostgresSink, harness.options, SCHEMA, co_commit=harness.own_register
    )
    began = time.monotonic()
    yield
    assert time.monotonic() - began < LONG, "it waited for a lock"
