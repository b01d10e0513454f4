"""Each format that the door finds is put to the suite of ``contract``, by a module of its system."""

from __future__ import annotations

import ast
from pathlib import Path
from threading import Thread

import pyarrow as pa

from abs_sinks.deadletters.letter import Shown
from abs_sinks.door import format_names
from tests.kit.entered import ROOT, modules_entered
from tests.sinks import contract

SYSTEMS = [name.removeprefix("abs-") for name in format_names()]
HERE = Path(__file__).parent
SHARED = {"delta": "lake", "iceberg": "lake"}
"""Systems whose ways stand in the folder of what they share."""


def takes_the_suite(path: Path) -> bool:
    """Whether the module takes the rules, or all."""
    found = [
        {name.name for name in node.names}
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ImportFrom) and node.module == contract.__name__
    ]
    return any(names & {"*", "test_the_sink_keeps_every_rule"} for names in found)


def untried(names: list[str]) -> list[str]:
    """The systems without a module that takes the suite."""
    folders = {name: HERE / SHARED.get(name, name) for name in names}
    return [
        name
        for name, folder in folders.items()
        if not any(takes_the_suite(path) for path in folder.glob("test_*.py"))
    ]


def test_each_format_that_the_door_finds_is_put_to_the_contract() -> None:
    assert len(SYSTEMS) >= 5
    assert untried(SYSTEMS) == []


def test_a_system_that_is_not_put_to_it_is_found() -> None:
    assert untried(["kafka/register"]) == ["kafka/register"]


def test_a_room_that_is_entered_is_found() -> None:
    """Also by a thread that the call starts; not by an import."""
    shown = Shown(("id",))

    def call() -> None:
        thread = Thread(target=shown.columns, args=(pa.schema([("id", pa.int64())]),))
        thread.start()
        thread.join()

    assert f"{contract.LETTERS}letter.py" in modules_entered(call)
    imported = compile("class A:\n    x = 1", f"{ROOT}/tests/imported.py", "exec")
    assert "tests/imported.py" not in modules_entered(lambda: exec(imported, {}))


def test_the_suite_gives_all_of_its_tests() -> None:
    of_registers = {"test_the_register_keeps_the_rule"}
    tests = {name for name in vars(contract) if name.startswith("test_")}
    assert tests - of_registers == {name for name in contract.__all__ if name.startswith("test_")}
