"""Checks a sink against the contract: every step, replay, race and zombie of the protocol.

Library code for authors of sinks, as trio's stream checks are. Use ``check_sink`` in one test, or
``applicable`` for one test per rule.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from abs_testing.case import Case, named
from abs_testing.checks import CHECKS
from abs_testing.harness import Opener
from abs_testing.rules import Check


def check_sink(opener: Opener, *, at_once: int = 1) -> list[str]:
    """Run every rule that applies to the sink, each on a target of its own.

    Args:
        opener: opens a harness on an empty target; called once for each rule.
        at_once: number of rules checked at the same time, each in a thread; more than 1 only if the
            targets are isolated from each other.

    Returns:
        the names of the checked rules, in order.

    Raises:
        AssertionError: a rule is broken; the first line names it.
    """
    with ThreadPoolExecutor(at_once) as pool:
        under = list(pool.map(lambda check: run_check(opener, check), CHECKS))
    return [check.rule for check, is_under in zip(CHECKS, under, strict=True) if is_under]


def run_check(opener: Opener, check: Check) -> bool:
    """Run one rule on a target of its own; return whether it applies to the sink.

    Raises:
        AssertionError: the rule is broken; its name is in the message.
    """
    with opener() as harness, closing(Case(harness)) as case:
        if not check.applies(case):
            return False
        with named(check.rule):
            check.body(case)
        return True


def applicable(opener: Opener) -> list[Check]:
    """The rules that apply to the sink."""
    with opener() as harness, closing(Case(harness)) as case:
        return [check for check in CHECKS if check.applies(case)]
