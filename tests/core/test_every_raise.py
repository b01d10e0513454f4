"""Every ``raise`` of protocol, births, coordinator, registers, committers and readers is reached.

``raises.txt`` names a test for each, and has each ``Refused(...)`` of the pure rules, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.core.raises_reached import ROOT, module_of, noted

LIST = Path(__file__).with_name("raises.txt")

MODULES = {
    "abs_core": (
        *("protocol.py", "sinkmap.py", "births/*.py", "coordinator/*.py", "registers.py"),
        *("several.py", "wal/*.py", "routing.py", "moving.py", "ownwrite.py"),
    ),
    "sinks/abs_sinks/postgres": (
        *("register.py", "twophase.py", "prepared.py", "epoch_transaction.py", "idempotent.py"),
        *("wal.py", "apply/rows_sql.py", "replay.py"),
    ),
    "sinks/abs_sinks/kafka": (
        *("register/*.py", "twophase.py", "wal.py", "idempotent.py", "ledger.py"),
        *("open_transaction.py", "side_topic.py", "give_up_attempts.py"),
    ),
    "sinks/abs_sinks/s3": (
        *("register.py", "twophase.py", "wal.py", "idempotent.py", "uploads.py"),
        *("upload_commit.py", "manifests.py", "segments.py", "committed.py"),
    ),
    "sinks/abs_sinks/lake": ("committer.py",),
    "sources/abs_sources/kafka": ("*.py",),
    "sources/abs_sources/files": (
        *("log.py", "readers.py", "columnar.py", "lines.py", "source.py"),
    ),
    "integration/abs_spark": (
        *("datasource/readable.py", "datasource/stream.py", "datasource/batch.py"),
        *("foreach/query.py", "foreach/run.py", "foreach/process.py", "foreach/tasks.py"),
        "checkpoint/*.py",
    ),
}


def listed() -> dict[str, str]:
    """The test of each ``raise``, by module, function and number in it."""
    pairs = (line.split("  ") for line in LIST.read_text().splitlines())
    return {name: test for name, test in pairs}  # noqa: C416 - it is checked that there are two


def raises_of(folder: str) -> list[str]:
    """Each ``raise`` of the modules in a folder that are looked at."""
    found = []
    for pattern in MODULES[folder]:
        paths = sorted((ROOT / folder).glob(pattern))
        assert paths, f"{folder}/{pattern} is gone: name where its content is now"
        for path in paths:
            module = module_of(path)
            assert module is not None
            found += noted(path, module)[1]
    return found


def test_the_list_has_every_raise_and_nothing_else() -> None:
    assert sorted(listed()) == sorted(name for folder in MODULES for name in raises_of(folder))


@pytest.mark.campaign
@pytest.mark.services
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("folder", MODULES)
def test_each_is_reached_by_the_test_that_is_named(folder: str, tmp_path: Path) -> None:
    tests = listed()
    named = {name: tests[name] for name in raises_of(folder)}
    reached = run(sorted(set(named.values())), tmp_path / "reached")
    assert missed(named, reached) == []
    first, *_, last = sorted(named)
    planted = {**named, first: "tests/core/test_cell.py::no_such_test", last: tests[last]}
    assert missed(planted, reached) == [first]


def run(tests: list[str], found: Path) -> set[tuple[str, str]]:
    """Each ``raise`` that these tests have reached, and the test."""
    plugin = ("-p", "tests.core.raises_reached")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "not campaign", *plugin, *tests],
        cwd=ROOT,
        env={**os.environ, "REACHED": str(found)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    lines = (line.split("\t") for line in found.read_text().splitlines())
    return {(name, test) for name, test in lines}


def missed(named: Mapping[str, str], reached: set[tuple[str, str]]) -> list[str]:
    """Each ``raise`` that its test has not reached."""
    return sorted(name for name, test in named.items() if (name, test) not in reached)
