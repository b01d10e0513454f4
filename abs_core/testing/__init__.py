"""The public surface for tests of sinks and registers: contract checks, crashes, fakes."""

from abs_core.testing.check_crashes import Killed, Nursery, check_crash_pairs, check_crashes
from abs_core.testing.check_register import check_register
from abs_core.testing.check_sink import applicable, check_sink, run_check
from abs_core.testing.harness import SCHEMA, Harness, Opener, Row, batch_of
from abs_core.testing.rules import Check

__all__ = [
    "SCHEMA",
    "Check",
    "Harness",
    "Killed",
    "Nursery",
    "Opener",
    "Row",
    "applicable",
    "batch_of",
    "check_crash_pairs",
    "check_crashes",
    "check_register",
    "check_sink",
    "run_check",
]
