"""Other releases of PySpark, fetched once into the cache folder, for drivers of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from abs_services.paths import cache_folder
from tests.spark import jvm


def use(version: str, patch: pytest.MonkeyPatch) -> None:
    """Let processes import this release, and start its JVM; as ``search_path`` otherwise."""
    patch.setenv("PYTHONPATH", search_path(version))
    patch.delenv(jvm.HOME, raising=False)


def search_path(version: str) -> str:
    """What a process's ``PYTHONPATH`` must be, so that it imports this release; with its own py4j.

    The test is skipped where the release cannot be fetched.
    """
    folder = cache_folder() / f"pyspark-{version}"
    if not folder.is_dir():
        _fetch(version, folder)
    (py4j,) = (folder / "pyspark" / "python" / "lib").glob("py4j-*.zip")
    return os.pathsep.join([str(folder), str(py4j)])


def _fetch(version: str, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / "made"
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        fetched = subprocess.run(
            [*install, "--target", str(made), f"pyspark=={version}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if fetched.returncode:
            pytest.skip(f"PySpark {version} cannot be had here: {fetched.stderr[-300:]}")
        try:
            made.rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(made, ignore_errors=True)
