"""Which ``raise`` lines of the product the everyday unit tests do not reach, and how many there may be.

    python -m tests.raises          # runs them under coverage.py, names each line that none reaches
    python -m tests.raises --renew  # and writes the numbers that have fallen
    python -m tests.raises --data build/raises tests/core  # a part of it, added; all of one checkout
    python -m tests.raises --data build/raises             # what all parts have reached together

A ``Refused(...)`` of the pure rules counts as a ``raise``. What only a server makes the product say is
not reached here: a new one is written into ``raises.json`` by hand, in the commit that names its test.
Lines that other processes run are not seen.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.roots import PRODUCT

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).with_suffix(".json")
UNIT = "not campaign and not services and not spark and not long"
"""What ``make quick`` runs."""
EXPLORATIONS = ("exhaustive", "explored", "stateful", "simulation")
"""Files of these names are left out: under coverage.py they take an hour, and reach nothing more."""

Lines = Mapping[str, Collection[int]]
"""Of each module, by its path: lines that were run."""


@dataclass
class Package:
    """The lines of a package that raise.

    Args:
        missed: those that no test reaches, as ``path:line``.
    """

    raises: int = 0
    missed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        reached = self.raises - len(self.missed)
        share = reached / self.raises if self.raises else 1.0
        return f"{reached} of {self.raises} lines that raise are reached ({share:.1%})"


def raise_lines(source: str) -> set[int]:
    """The first line of each statement that raises, or makes a ``Refused``."""
    return {
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.stmt) and _raises(node)
    }


def _raises(node: ast.stmt) -> bool:
    if isinstance(node, ast.Raise):
        return node.exc is not None
    value = node.value if isinstance(node, ast.Return | ast.Assign | ast.Expr) else None
    calls = (c for c in ast.walk(value) if isinstance(c, ast.Call)) if value is not None else ()
    return any(ast.unparse(call.func) == "Refused" for call in calls)


def sources() -> Iterator[tuple[str, str]]:
    """The path and the text of every module of the product."""
    for folder in PRODUCT:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text()


def packages(texts: Mapping[str, str], run: Lines) -> dict[str, Package]:
    """The packages of these modules, where these lines were run."""
    found: dict[str, Package] = {}
    for path, text in texts.items():
        parts = path.split("/")
        name = next(part for part in parts if part.startswith(("abs_", "pyspark_")))
        package = found.setdefault(name, Package())
        lines = raise_lines(text)
        package.raises += len(lines)
        package.missed += [f"{path}:{line}" for line in sorted(lines - set(run.get(path, ())))]
    return found


def more_missed(now: Mapping[str, Package], allowed: Mapping[str, int]) -> dict[str, list[str]]:
    """The packages of which more lines are missed than may be, and all that are."""
    return {
        name: package.missed
        for name, package in now.items()
        if len(package.missed) > allowed.get(name, 0)
    }


def measured(*tests: str, data: Path | None = None) -> dict[str, Package]:
    """Run the unit tests under coverage.py, in one process.

    Args:
        tests: files or folders of them; default: all, and none if ``data`` has what parts reached.
        data: is kept, and what the tests reach is added to it.

    Raises:
        RuntimeError: they fail.
    """
    with tempfile.TemporaryDirectory() as folder:
        report, settings = Path(folder) / "report.json", Path(folder) / "coveragerc"
        kept = (data or Path(folder) / "data").absolute()
        settings.write_text(f"[run]\nsource = {','.join(PRODUCT)}\ndata_file = {kept}\n")
        coverage, configured = [sys.executable, "-m", "coverage"], f"--rcfile={settings}"
        if tests or data is None:
            left_out = [f"--ignore-glob=*{name}*" for name in EXPLORATIONS]
            pytest = ["-m", "pytest", "-q", "-n", "0", "-m", UNIT, *left_out, *(tests or ["tests"])]
            environment = {**os.environ, "COVERAGE_CORE": "ctrace"}
            run = [*coverage, "run", "--append", configured, *pytest]
            done = subprocess.run(run, cwd=ROOT, env=environment, check=False)
            if done.returncode != 0:
                raise RuntimeError("the tests fail: nothing is measured")
        subprocess.run(
            [*coverage, "json", configured, "-q", "-o", str(report)], cwd=ROOT, check=True
        )
        files = json.loads(report.read_text())["files"]
    return packages(dict(sources()), {path: file["executed_lines"] for path, file in files.items()})


def allowed() -> dict[str, int]:
    """How many lines that raise may be missed, of each package."""
    numbers: dict[str, int] = json.loads(FILE.read_text())
    return numbers


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--renew", action="store_true", help="write the numbers that have fallen")
    parser.add_argument("--data", type=Path, help="a file that keeps what parts have reached")
    parser.add_argument("tests", nargs="*", help="files or folders: a part, which is not compared")
    arguments = parser.parse_args()
    now, before = measured(*arguments.tests, data=arguments.data), allowed()
    for name, package in now.items():
        print(f"{name}: {package}; not reached:", *package.missed, sep="\n  ")
    if arguments.tests:
        return
    if arguments.renew:
        fallen = {n: min(len(p.missed), before.get(n, len(p.missed))) for n, p in now.items()}
        FILE.write_text(json.dumps(fallen, indent=1, sort_keys=True) + "\n")
    if more := more_missed(now, before):
        sys.exit(f"more lines that raise are not reached than before: {', '.join(more)}")


if __name__ == "__main__":
    main()
