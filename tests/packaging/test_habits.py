"""Names that say nothing, and tests that replace our own functions, become fewer."""

from __future__ import annotations

import ast

import pytest

from tests.packaging.baseline import (
    counted,
    hidden_parameters,
    patched_functions,
    read,
    signatures,
    vague_names,
)

HINT = "the numbers only fall; when they have: python -m tests.packaging.baseline"


def test_no_folder_has_more_of_a_habit_than_before() -> None:
    before, now = read(), counted()
    more = {
        (habit, folder): (number, before[habit].get(folder, 0))
        for habit, folders in now.items()
        for folder, number in folders.items()
        if number > before[habit].get(folder, 0)
    }
    assert more == {}, HINT
    assert {habit: dict(folders) for habit, folders in now.items()} == before, HINT


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("def f():\n    found = 1\n    for each in found: pass", 2),
        ("def find_row():\n    found = 1\n    return found", 0),
        ("def f():\n    def inner():\n        told = 1\n    rows = 2", 1),
        ("def f(given): return given", 0),
    ],
)
def test_a_vague_name_is_counted_once(code: str, count: int) -> None:
    assert len([*vague_names(ast.parse(code))]) == count


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("from abs_core import x\nmonkeypatch.setattr(x, 'commit', f)", 1),
        ("monkeypatch.setattr('abs_core.x.commit', f)", 1),
        ("monkeypatch.setattr('abs_core.x.SECONDS', 1)", 0),
        ("import os\nmonkeypatch.setattr(os, 'fsync', f)", 0),
        ("monkeypatch.setattr(FakeSink, 'commit', f)", 0),
    ],
)
def test_a_function_of_ours_that_a_test_replaces_is_counted(code: str, count: int) -> None:
    assert len([*patched_functions(ast.parse(code))]) == count


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("def run(epoch, rows): ...\nrun(*work)", 1),
        ("def run(*rows): ...\nrun(*work)", 0),
        ("class Task:\n    epoch: int\nTask(*who, epoch=1)", 1),
        ("log.info('%s', *names)", 0),
    ],
)
def test_a_tuple_for_parameters_is_counted(code: str, count: int) -> None:
    tree = ast.parse(code)
    assert len([*hidden_parameters(tree, signatures([tree]))]) == count
