"""The public surface for tests of sinks, sources and registers: contracts, crashes, lost calls."""

from abs_testing.calls import Calls, PositionOpener, by_calls
from abs_testing.check_changes import Changing, ChangingOpener, check_changes
from abs_testing.check_crashes import (
    ForkServer,
    Killed,
    check_changed_crashes,
    check_crash_pairs,
    check_crashes,
)
from abs_testing.check_once import OwnOpener, OwnTarget, check_once
from abs_testing.check_positions import Position, Tried, check_positions
from abs_testing.check_reads import check_reads
from abs_testing.check_register import check_register
from abs_testing.check_repeats import Repeat, Repeating, RepeatOpener, check_repeats
from abs_testing.check_segments import check_segments
from abs_testing.check_sink import applicable, check_sink, run_check
from abs_testing.check_source import SOURCE_CHECKS, check_source, run_source_check
from abs_testing.harness import (
    SCHEMA,
    GoingBack,
    Harness,
    Holding,
    Opener,
    Refusing,
    Remaking,
    Restoring,
    Row,
    SourceHarness,
    SourceOpener,
    batch_of,
)
from abs_testing.rules import Check

__all__ = [
    "SCHEMA",
    "SOURCE_CHECKS",
    "Calls",
    "Changing",
    "ChangingOpener",
    "Check",
    "ForkServer",
    "GoingBack",
    "Harness",
    "Holding",
    "Killed",
    "Opener",
    "OwnOpener",
    "OwnTarget",
    "Position",
    "PositionOpener",
    "Refusing",
    "Remaking",
    "Repeat",
    "RepeatOpener",
    "Repeating",
    "Restoring",
    "Row",
    "SourceHarness",
    "SourceOpener",
    "Tried",
    "applicable",
    "batch_of",
    "by_calls",
    "check_changed_crashes",
    "check_changes",
    "check_crash_pairs",
    "check_crashes",
    "check_once",
    "check_positions",
    "check_reads",
    "check_register",
    "check_repeats",
    "check_segments",
    "check_sink",
    "check_source",
    "run_check",
    "run_source_check",
]
