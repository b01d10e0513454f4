"""Proves a sink against the contract: every step, replay, race and zombie of the protocol.

Ships as library code, so that a sink can be written and proven outside this project, as trio's stream
checks do. Use ``check_sink`` in one test, or ``applicable`` to have one test for each rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from abs_core.testing.case import Case
from abs_core.testing.checks import CHECKS
from abs_core.testing.harness import Opener
from abs_core.testing.rules import Check


def check_sink(opener: Opener, *, at_once: int = 1) -> list[str]:
    """Run every rule that applies to the sink, each on a target of its own.

    Args:
        opener: opens a harness on an empty target; called once for each rule.
        at_once: rules that are checked at the same time, each in a thread: only where nothing that
            one of these targets holds can be seen from another.

    Returns:
        the names of the rules that were checked, in order.

    Raises:
        AssertionError: a rule is broken; the first line names it.
    """
    with ThreadPoolExecutor(at_once) as pool:
        under = list(pool.map(lambda check: run_check(opener, check), CHECKS))
    return [check.rule for check, is_under in zip(CHECKS, under, strict=True) if is_under]


def run_check(opener: Opener, check: Check) -> bool:
    """Run one rule on a target of its own; whether the sink is under it.

    Raises:
        AssertionError: the rule is broken; its name is in the message.
    """
    with _case(opener) as case:
        if not check.applies(case):
            return False
        try:
            check.body(case)
        except Exception as broken:
            what = "" if isinstance(broken, AssertionError) else f"{type(broken).__name__}: "
            raise AssertionError(f"{check.rule}: {what}{broken}") from broken
        return True


def applicable(opener: Opener) -> list[Check]:
    """The rules that the sink is under: to have a test for each."""
    with _case(opener) as case:
        return [check for check in CHECKS if check.applies(case)]


@contextmanager
def _case(opener: Opener) -> Iterator[Case]:
    with opener() as harness:
        case = Case(harness)
        try:
            yield case
        finally:
            case.close()
