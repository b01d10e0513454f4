"""Defects that let the audit say CLEAN where it is not, each found by the audit's own tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AUDIT = ROOT / "integration" / "abs_audit"


@dataclass(frozen=True)
class Plant:
    """A defect.

    Args:
        name: what the audit does then.
        module: of ``abs_audit``.
        right: a text that the module has once.
        wrong: in its place.
        tests: the file of tests that finds it.
    """

    name: str
    module: str
    right: str
    wrong: str
    tests: str


def plain(wrong: str) -> tuple[str, str]:
    """Text that is compared otherwise."""
    right = 'return f"cast({column} as {_PLAIN[common.family]})"'
    return right, f"{right} if common.family is not Family.TEXT else {wrong}"


def before_comparing(statement: str) -> tuple[str, str]:
    """A statement of SQL before both sides are compared."""
    right = '        meter.begin("comparing", connection)\n'
    return right, f'{right}        connection.execute(f"{statement}")\n'


PLANTS = [
    Plant(
        "takes equal records for one",
        "workspace",
        'as select *, "',
        'as select distinct *, "',
        "differences",
    ),
    Plant(
        "reads as many records as it expects",
        "workspace",
        "from incoming as incoming({', '.join(columns)}))\"\n            )\n    except",
        "from incoming as incoming({', '.join(columns)}) \"\n"
        "                + ('limit (select count(*) from expected))' if actual else ')')\n"
        "            )\n    except",
        "differences",
    ),
    Plant(
        "reads the target once",
        "auditor",
        "        if reads == 1:\n            continue\n        "
        "difference = moved(connection, before, latest)",
        "        difference = 0",
        "snapshots",
    ),
    Plant(
        "forgives two reads that differ",
        "report",
        "        if self.moved:\n",
        "        if False:\n",
        "snapshots",
    ),
    Plant(
        "forgets what was in doubt before the last read",
        "report",
        "self.looks[-2:]",
        "self.looks[-1:]",
        "snapshots",
    ),
    Plant(
        "forgives what it could not look at",
        "report",
        '(*look.doubts, *(f"not checked: {part}" for part in look.unchecked))',
        "look.doubts",
        "snapshots",
    ),
    Plant(
        "forgives prepared transactions",
        "report",
        '            (prepared, "prepared',
        '            ([], "prepared',
        "snapshots",
    ),
    Plant(
        "forgives writers that have not ended",
        "report",
        '            (writers, "lock',
        '            ([], "lock',
        "snapshots",
    ),
    Plant(
        "forgives duplicates",
        "report",
        'KINDS = ("missing", "duplicate", "unexpected", "corrupted")',
        'KINDS = ("missing", "unexpected", "corrupted")',
        "differences",
    ),
    Plant(
        "compares the key only",
        "plan",
        "return Plan(tuple(pairs), len(keys), derived)",
        "return Plan(tuple(pairs[: len(keys)] or pairs), len(keys), derived)",
        "differences",
    ),
    Plant("compares text without its case", "canonical", *plain('f"lower({column})"'), "values"),
    Plant(
        "takes an empty text for NULL",
        "canonical",
        *plain("f\"nullif({column}, '')\""),
        "differences",
    ),
    Plant(
        "loses the last line of JSON",
        "textfiles",
        "lines = [line for line in block if line.strip()]",
        "lines = [line for line in block if line.strip()][:-1]",
        "files",
    ),
    Plant(
        "expects only what is there",
        "auditor",
        *before_comparing("delete from expected where digest not in (select digest from {latest})"),
        "differences",
    ),
    Plant(
        "looks only at what it expects",
        "auditor",
        *before_comparing("delete from {latest} where digest not in (select digest from expected)"),
        "differences",
    ),
    Plant(
        "compares files of the lake with those that were removed before",
        "duplicates",
        "return path in self._live or self.moved(path)",
        "return True",
        "duplicates_histories",
    ),
    Plant(
        "advises to remove the later file where the first is gone",
        "duplicates",
        "for file in [file for file in files if file.path in history.live][1:]",
        "for file in files[1:]",
        "duplicates_histories",
    ),
    Plant(
        "forgets rows that a compaction moved",
        "duplicates",
        "            if commit.rewrites:\n",
        "            if False:\n",
        "duplicates",
    ),
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_each_is_planted_in_one_place(plant: Plant) -> None:
    assert (AUDIT / f"{plant.module}.py").read_text().count(plant.right) == 1


@pytest.mark.campaign
@pytest.mark.long
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_the_audits_own_tests_find_it(plant: Plant, tmp_path: Path) -> None:
    shutil.copytree(AUDIT, tmp_path / "abs_audit")
    module = tmp_path / "abs_audit" / f"{plant.module}.py"
    module.write_text(module.read_text().replace(plant.right, plant.wrong))
    tests = f"tests/audit/test_audit_{plant.tests}.py"
    words = ["-q", "-x", "-p", "no:cacheprovider", "-m", "not services and not campaign", tests]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 1, done.stdout[-2000:]
    assert "\nFAILED " in done.stdout, "it fails by an assertion, and not as it is collected"
