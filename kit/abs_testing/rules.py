"""A check: a rule of the contract, its name, and to which sinks it applies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from abs_core.contracts import Inventory
from abs_testing.case import Case, rules_in
from abs_testing.harness import GoingBack, Holding, Refusing, Remaking, Restoring

Body = Callable[[Case], None]
Applies = Callable[[Case], bool]


@dataclass(frozen=True, slots=True)
class Check:
    """A rule of the contract.

    Args:
        rule: its name, a sentence with underscores.
        body: raises AssertionError if the rule is broken.
        applies: whether the rule applies to the sink, by its guarantee and register.
    """

    rule: str
    body: Body
    applies: Applies


def any_sink(case: Case) -> bool:
    return True


def hiding(case: Case) -> bool:
    """Sinks whose rows are invisible until commit."""
    return case.hides


def two_step(case: Case) -> bool:
    """Sinks whose epochs are first decided, then committed handle by handle."""
    return not case.co_commits


def hiding_two_step(case: Case) -> bool:
    return case.hides and not case.co_commits


def co_committing(case: Case) -> bool:
    """Sinks that apply rows and register in one transaction."""
    return case.co_commits


def holding(case: Case) -> bool:
    """Sinks whose harness can make a handle impossible to abort."""
    return case.hides and isinstance(case.harness, Holding)


def refusing(case: Case) -> bool:
    """Sinks whose harness can make the target refuse rows."""
    return case.hides and isinstance(case.harness, Refusing)


def restoring(case: Case) -> bool:
    """Sinks whose own register the harness can lose and restore."""
    return case.harness.own_register and isinstance(case.harness, Restoring)


def going_back(case: Case) -> bool:
    """Sinks with two steps whose target the harness can restore."""
    return two_step(case) and case.hides and isinstance(case.harness, GoingBack)


def going_back_on_the_way(case: Case) -> bool:
    """Of those, sinks that look back before each decision, too."""
    return going_back(case) and not getattr(case.harness, "only_at_starts", False)


def remaking(case: Case) -> bool:
    """Sinks that hide rows until commit, and whose target the harness can make again."""
    return case.hides and isinstance(case.harness, Remaking)


def remaking_two_step(case: Case) -> bool:
    return remaking(case) and two_step(case)


def going_back_by_handle(case: Case) -> bool:
    """Of them, sinks whose handles are committed one by one: a target may have some of an epoch's."""
    return going_back(case) and not case.sink().committer().composes


def listed(case: Case) -> bool:
    """Sinks whose register is an ``Inventory``."""
    return isinstance(case.run().store, Inventory)


def upserting(case: Case) -> bool:
    return case.guarantee.write == "upsert"


_ONLY: dict[Body, Applies] = {}


def only(applies: Applies) -> Callable[[Body], Body]:
    """Decorates a rule that does not apply to every sink."""

    def mark(body: Body) -> Body:
        _ONLY[body] = applies
        return body

    return mark


def checks_in(module: ModuleType) -> tuple[Check, ...]:
    """The checks of a module; each function's name is its rule."""
    bodies = rules_in(module.__name__, "Case")
    return tuple(Check(body.__name__, body, _ONLY.get(body, any_sink)) for body in bodies)
