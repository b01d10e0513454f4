"""PySpark's daemon, from the installed package: Spark's Python processes start with less CPU.

Spark puts its own ``pyspark.zip`` before all packages, and Python compiles a zip's modules anew in each
process: a daemon starts in 0.5 s of CPU, and in 0.14 s from an installed package. The start of a format
needs five of them, one after the other.

Set ``spark.python.daemon.module=abs_spark.daemon`` before the session is made. Where the Python that
Spark starts has no PySpark of the same release installed, it is PySpark's daemon as it is.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from zipimport import ZipImportError, zipimporter

_RELEASE = "pyspark/version.py"
_ZIPS = ("pyspark.zip", "py4j-")


def installed_first(path: Sequence[str]) -> list[str]:
    """A ``sys.path`` with Spark's zips last, if PySpark is installed in the release of its zip."""
    zips = [entry for entry in path if Path(entry).is_file() and _name(entry).startswith(_ZIPS)]
    folders = [entry for entry in path if entry not in zips]
    installed = next((at for at in folders if Path(at, _RELEASE).is_file()), None)
    released = next((entry for entry in zips if _name(entry) == _ZIPS[0]), None)
    if installed is None or released is None:
        return [*path]
    try:
        same = zipimporter(released).get_data(_RELEASE) == Path(installed, _RELEASE).read_bytes()
    except (OSError, ZipImportError):
        return [*path]
    return [*folders, *zips] if same else [*path]


def _name(entry: str) -> str:
    return Path(entry).name


if __name__ == "__main__":
    sys.path[:] = installed_first(sys.path)
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
