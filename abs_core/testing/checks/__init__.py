"""The rules of the sink's contract, by theme."""

from abs_core.testing.checks import births, names, outcomes, replays, steps, zombies
from abs_core.testing.rules import Check

CHECKS: tuple[Check, ...] = (
    *steps.rule.checks,
    *replays.rule.checks,
    *births.rule.checks,
    *zombies.rule.checks,
    *outcomes.rule.checks,
    *names.rule.checks,
)
"""Every rule, in the order in which they are best read and run."""
