"""The options of a sink whose author declares them as fields, and writes no rules of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest

from abs_clients import options
from abs_clients.options import Option, text, whole_number
from abs_core.errors import OptionError
from abs_sinks import options as sink_options
from abs_sinks.options import CommonOptions, parse_options
from tests.planted import planted


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """Each way to declare an option."""

    path: Annotated[str, text]
    table: Annotated[str, Option("dbtable", text)]
    deadletter: Annotated[str | None, text] = None
    file: Annotated[str | None, Option("lockfile", text)] = None
    rows: Annotated[int, Option("batchsize", whole_number(1, 9))] = 5
    tasks: Annotated[int, whole_number(1, 9)] = 2
    common: CommonOptions


GIVEN = {"path": "/a", "DBTABLE": "t"}


def parsed(**more: str) -> Declared:
    return parse_options(Declared, "abs-declared", {**GIVEN, **more})


def test_an_option_that_is_left_out_has_the_default_of_its_field() -> None:
    left = parsed()
    assert (left.path, left.table, left.deadletter, left.file) == ("/a", "t", None, None)
    assert (left.rows, left.tasks) == (5, 2)
    assert parsed(deadletter="d", batchsize="9").rows == 9


@pytest.mark.parametrize(("name", "shown"), [("path", "path"), ("DBTABLE", "dbtable")])
def test_an_option_without_a_default_must_be_given(name: str, shown: str) -> None:
    with pytest.raises(OptionError, match=rf"The option {shown} is missing"):
        parse_options(Declared, "abs-declared", {n: v for n, v in GIVEN.items() if n != name})


def test_a_default_of_none_that_is_taken_for_none_is_found() -> None:
    def without_any(values: type) -> list[Option]:
        return [option for option in options.options_of(values) if option.default is None]

    bug = sink_options, "needed", without_any
    with planted(bug, by=OptionError, match="deadletter is missing"):
        test_an_option_that_is_left_out_has_the_default_of_its_field()
