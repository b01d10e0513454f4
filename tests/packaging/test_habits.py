"""Names that say nothing, and tests that replace our own functions, become fewer."""

from __future__ import annotations

import ast

import pytest

from tests.packaging.baseline import (
    counted,
    hidden_parameters,
    read,
    signatures,
    vague_names,
)
from tests.packaging.patches import Patches

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
        ("def f(given): return given", 1),
        ("def find(found, *, what=1, **told): found = what", 3),
        ("def f():\n    def inner(each): return each\n    return lambda known: known", 2),
    ],
)
def test_a_vague_name_is_counted_once(code: str, count: int) -> None:
    assert len([*vague_names(ast.parse(code))]) == count


WIRE = "from abs_clients.kafka import wire\n"


@pytest.mark.parametrize(
    "code",
    [
        "from abs_core import x\nmonkeypatch.setattr(x, 'commit', f)",
        "from abs_core.x import X\npatch.setattr(X, 'commit', f)",
        "from abs_core.x import X\npatch.delattr(X, 'commit')",
        "from abs_core.x import X\npatch.setattr(X, name, f)",
        "from abs_core.x import X\nsetattr(X, 'commit', f)",
        "from abs_core.x import X\nwith mock.patch.object(X, 'commit'): pass",
        "from abs_core.x import X\nX.commit = f",
        "from abs_core import x\nmonkeypatch.setitem(vars(x), 'commit', f)",
        "from abs_core import x\nmonkeypatch.setitem(x.__dict__, 'commit', f)",
        "monkeypatch.setitem(place, name, f)",
        "x = made()\nx.commit = f  # type: ignore[method-assign]",
        "from typing import Any\ndef f(x: Any): monkeypatch.setattr(x, 'commit', f)",
        "monkeypatch.setattr('abs_core.x.commit', f)",
        "with patch('abs_core.x.commit'): pass",
        "from abs_spark import FakeSink\nmonkeypatch.setattr(FakeSink, 'commit', f)",
        f"{WIRE}monkeypatch.setattr(wire, 'check_access', f)",
    ],
)
def test_a_function_of_ours_that_a_test_replaces_is_counted(code: str) -> None:
    assert len([*Patches(code).functions()]) == 1


@pytest.mark.parametrize(
    "code",
    [
        "monkeypatch.setattr('abs_core.x.SECONDS', 1)",
        "import os\nmonkeypatch.setattr(os, 'fsync', f)",
        "from abs_testing.fakes import FakeSink\nmonkeypatch.setattr(FakeSink, 'commit', f)",
        "from abs_testing.fakes import FakeSink\nx = FakeSink()\nmonkeypatch.setattr(x, 'commit', f)",
        "class Broker: ...\nmonkeypatch.setattr(Broker, 'answer', f)",
        f"{WIRE}monkeypatch.setattr(wire, 'KafkaAdminClient', f)",
        f"{WIRE}monkeypatch.setattr(wire.time, 'monotonic', f)",
        f"{WIRE}monkeypatch.setattr('abs_clients.kafka.wire.time.monotonic', f)",
        "monkeypatch.setitem(os.environ, 'HOME', '/')",
        "self.commit = f",
    ],
)
def test_a_setting_a_fake_or_a_wire_may_be_replaced(code: str) -> None:
    assert [*Patches(code).functions()] == []


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("def run(epoch, rows): ...\nrun(*work)", 1),
        ("def run(*rows): ...\nrun(*work)", 0),
        ("class Task:\n    epoch: int\nTask(*who, epoch=1)", 1),
        ("log.info('%s', *names)", 0),
        ("def log(a): ...\nlogger.log(level, text, *names)", 0),
        ("def run(epoch, rows): ...\nrun(*(epoch, rows))", 0),
        ("def run(epoch, rows): ...\npartial(run, *work)", 1),
        ("from pyiceberg.typedef import Record\nclass Record: ...\nRecord(*values)", 0),
        ("def join(a, b): ...\nimport os\nos.path.join(*parts)", 0),
        ("from abs_core.x import run\ndef run(epoch, rows): ...\nrun(*work)", 1),
        ("class Spec(Foreign):\n    @classmethod\n    def of(cls, x): return cls(*x)", 0),
        ("class Task:\n    @classmethod\n    def of(cls, x): return cls(*x)", 1),
        ("class Rows:\n    def __init__(self, *rows): ...\nRows(*batch)", 0),
    ],
)
def test_a_tuple_for_parameters_is_counted(code: str, count: int) -> None:
    tree = ast.parse(code)
    assert len([*hidden_parameters(tree, signatures([tree]))]) == count
