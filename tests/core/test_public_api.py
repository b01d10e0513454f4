"""The names that others may rely on: a change of this file is a change of the public API."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.roots import FOLDERS

ROOT = Path(__file__).parents[2]

PUBLIC = {
    "abs_core": """
        aborting barriers codec contracts coordinator crash errors events lookback model
        patience protocol registers routing source wal
    """,
    "abs_embedded": """
        STRATEGIES EventTime Graph Job Restore Settings Sinks Stream describe mermaid
    """,
    "abs_testing": """
        Calls Changing ChangingOpener Check ForkServer GoingBack Harness Holding Killed Opener
        OwnOpener OwnTarget Position PositionOpener Refusing Remaking Repeat RepeatOpener Repeating
        Restoring Row SCHEMA SOURCE_CHECKS SourceHarness SourceOpener Tried applicable batch_of by_calls
        check_changed_crashes check_changes check_crash_pairs check_crashes check_once
        check_positions check_reads
        check_register check_repeats check_segments check_sink check_source run_check
        run_source_check
    """,
    "abs_testing.fakes": "FakeSink FakeTarget",
}


NAMES = Path(__file__).with_name("public_names.txt")
"""Second level: what each public module of ``abs_core`` defines, one line a module."""


def _defined(name: str) -> list[str]:
    """The names without an underscore that a module assigns, defines or exports anew."""
    module = importlib.import_module(f"abs_core.{name}")
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    found = set()
    for node in ast.parse(Path(module.__file__ or "").read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname for alias in node.names if alias.asname}
    return sorted(name for name in found if not name.startswith("_"))


def test_the_public_modules_define_these_names() -> None:
    """What is added or dropped here changes the public API: write the file anew, and say so."""
    held = dict(line.split(":", 1) for line in NAMES.read_text().splitlines())
    modules = PUBLIC["abs_core"].split()
    assert {name: " ".join(_defined(name)) for name in modules} == {
        name: held.get(name, "").strip() for name in modules
    }
    assert set(held) == set(modules)


@pytest.mark.parametrize("package", PUBLIC)
def test_a_package_exports_these_names(package: str) -> None:
    module = importlib.import_module(package)
    assert sorted(module.__all__) == sorted(PUBLIC[package].split())
    for name in module.__all__:
        if not hasattr(module, name):
            importlib.import_module(f"{package}.{name}")


def test_the_page_of_python_has_each_name_of_abs_spark() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text()
    [members] = re.findall(r"^      members: \[(.*)\]$", page, re.MULTILINE)
    exported = {*importlib.import_module("abs_spark").__all__}
    assert {*members.split(", ")} == exported - {"__version__"}


def imported(path: Path) -> Iterator[str]:
    """The modules of the core that a file imports, by their names below ``abs_core``."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "abs_core":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("abs_core."):
            yield (node.module or "").removeprefix("abs_core.")
        elif isinstance(node, ast.Import):
            yield from (
                alias.name.removeprefix("abs_core.")
                for alias in node.names
                if alias.name.startswith("abs_core.")
            )


def test_the_examples_of_the_docs_use_the_public_api_only() -> None:
    public = set(PUBLIC["abs_core"].split())
    files = sorted((ROOT / "docs").rglob("*.py"))
    used = {file.name: {name.partition(".")[0] for name in imported(file)} for file in files}
    assert any(used.values())
    assert {name: more for name, names in used.items() if (more := names - public)} == {}


@pytest.mark.parametrize(
    "folder",
    [*FOLDERS, "benchmarks", "docs"],
)
def test_nothing_outside_the_core_imports_a_private_module_of_it(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    private = {
        (str(file.relative_to(ROOT)), name)
        for file in files
        for name in imported(file)
        if any(part.startswith("_") for part in name.split("."))
    }
    assert private == set()
