"""What ``import abs_spark`` costs: it is in every Python process of Spark, and in every program."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_MODULES = 80
"""It was 254 at release 0.1.0, with PySpark, and is 55 on Python 3.11; other Pythons load others."""
HEAVY = {
    "abs_clients",
    "abs_sinks",
    "numpy",
    "openlineage",
    "opentelemetry",
    "pandas",
    "pyarrow",
    "pyspark",
    "rich",
    "tenacity",
}
"""Loaded when they are used."""


def loaded(statement: str, path: Path = ROOT) -> set[str]:
    """The modules that a statement loads in a new process."""
    code = f"import sys; had = set(sys.modules); {statement}; print(*set(sys.modules) - had)"
    roots = [path, ROOT, *(ROOT / name for name in ("clients", "sinks", "kit", "integration"))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, roots))}
    run = [sys.executable, "-c", code]
    return set(
        subprocess.run(
            run, env=environment, capture_output=True, text=True, check=True
        ).stdout.split()
    )


def heavy(modules: Iterable[str]) -> set[str]:
    return {name.split(".")[0] for name in modules} & HEAVY


def test_the_import_loads_few_modules_and_no_library() -> None:
    found = loaded("import abs_spark")
    assert "abs_spark" in found
    assert len(found) <= MOST_MODULES
    assert heavy(found) == set()


@pytest.mark.parametrize("library", ["pyarrow", "opentelemetry.metrics"])
def test_a_library_that_is_loaded_with_it_is_found(library: str, tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(f"import abs_spark\nimport {library}\n")
    found = loaded("import planted", tmp_path)
    assert heavy(found) >= {library.split(".")[0]}


def test_sinks_and_functions_do_not_load_what_only_lineage_needs() -> None:
    assert "openlineage" not in heavy(loaded("from abs_spark import epoch, sink, listener"))
