"""The rules of the sink's contract, by theme: the public functions of a module that take a ``Case``."""

from abs_testing.checks import births, names, outcomes, refusals, replays, steps, targets, zombies
from abs_testing.rules import Check, checks_in

CHECKS: tuple[Check, ...] = tuple(
    check
    for module in (steps, replays, births, targets, zombies, outcomes, refusals, names)
    for check in checks_in(module)
)
"""Every rule, in the order in which they are best read and run."""
