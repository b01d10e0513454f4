"""The public surface for tests of sinks and registers: contract checks, crashes, fakes."""

from abs_core.testing.check_sink import applicable, check_sink, run_check
from abs_core.testing.harness import SCHEMA, Harness, Opener, Row, batch_of
from abs_core.testing.rules import Check

__all__ = [
    "SCHEMA",
    "Check",
    "Harness",
    "Opener",
    "Row",
    "applicable",
    "batch_of",
    "check_sink",
    "run_check",
]
