"""Checks a source against the contract: it can be replayed from every position.

Library code for authors of sources. Use ``check_source`` in one test, or ``run_source_check`` with each
of ``SOURCE_CHECKS``.
"""

from __future__ import annotations

from abs_testing.case import named
from abs_testing.checks.sources import SOURCE_CHECKS, SourceCheck
from abs_testing.harness import SourceOpener
from abs_testing.ranges import SourceCase

__all__ = ["SOURCE_CHECKS", "SourceCheck", "check_source", "run_source_check"]


def check_source(opener: SourceOpener) -> list[str]:
    """Run every rule, each on a place of its own.

    Crashes are not covered, as a source keeps no state.

    Args:
        opener: opens a harness on an empty place; called once for each rule, and once for each
            damage.

    Returns:
        the names of the rules, in order.

    Raises:
        AssertionError: a rule is broken; its name is in the message.
    """
    for check in SOURCE_CHECKS:
        run_source_check(opener, check)
    return [check.__name__ for check in SOURCE_CHECKS]


def run_source_check(opener: SourceOpener, check: SourceCheck) -> None:
    """Run one rule.

    Raises:
        AssertionError: the rule is broken; its name is in the message.
    """
    with opener() as harness, named(check.__name__):
        check(SourceCase(harness, opener))
