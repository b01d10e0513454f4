"""The door for planted bugs lets no test double through."""

from __future__ import annotations

import pytest

from tests.planted import Plant, planted


class Register:
    def load(self) -> int:
        return 1


def loads_nothing(plant: Plant) -> None:
    plant(Register, "load", lambda self: 0)


def loads_one() -> None:
    assert Register().load() == 1, "another number"


def test_a_bug_that_a_check_finds_is_planted_for_the_block_only() -> None:
    with planted(loads_nothing, match="another number"):
        loads_one()
    with planted((Register, "load", lambda self: 2)) as error:
        loads_one()
    assert "another number" in str(error.value)
    loads_one()


def test_a_block_in_which_nothing_finds_the_bug_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"), planted(loads_nothing):
        Register().load()
    loads_one()


def test_another_error_is_no_finding() -> None:
    with pytest.raises(ZeroDivisionError), planted(loads_nothing):
        1 // Register().load()


def test_a_name_that_is_not_there_is_refused() -> None:
    with pytest.raises(AttributeError, match="store"), planted((Register, "store", loads_one)):
        loads_one()
