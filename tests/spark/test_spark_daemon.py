"""Spark's Python processes take PySpark from the installed package, if it is the zip's release."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

from abs_spark.daemon import installed_first


def folder(at: Path, release: str) -> str:
    (at / "pyspark").mkdir(parents=True)
    (at / "pyspark" / "version.py").write_text(release)
    return str(at)


def zipped(at: Path, name: str, **files: str) -> str:
    with ZipFile(at / name, "w") as made:
        for file, text in files.items():
            made.writestr(file, text)
    return str(at / name)


@pytest.mark.parametrize("release", ["4.1.1", "4.3.0", None])
def test_the_zips_come_last_only_where_the_same_release_is_installed(
    tmp_path: Path, release: str | None
) -> None:
    pyspark = zipped(tmp_path, "pyspark.zip", **{"pyspark/version.py": "4.1.1"})
    py4j = zipped(tmp_path, "py4j-0.10-src.zip")
    others = ["", str(tmp_path), *([folder(tmp_path / "site", release)] if release else [])]
    ordered = [*others, pyspark, py4j] if release == "4.1.1" else [pyspark, py4j, *others]
    assert installed_first([pyspark, py4j, *others]) == ordered


def test_a_path_without_a_zip_or_with_a_damaged_one_stays(tmp_path: Path) -> None:
    installed = folder(tmp_path / "site", "4.1.1")
    damaged, other = tmp_path / "pyspark.zip", zipped(tmp_path, "mine.zip", file="")
    damaged.write_bytes(b"no zip")
    for path in ([other, installed], [str(damaged), installed], [str(tmp_path / "gone.zip")]):
        assert installed_first(path) == path


def test_sparks_own_zip_is_passed_by() -> None:
    package = find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    library = Path(package.origin).parent / "python" / "lib"
    path = os.pathsep.join(map(str, sorted(library.glob("*.zip"), reverse=True)))
    for order, zips in (("sys.path", True), ("installed_first(sys.path)", False)):
        code = (
            "import sys\nfrom abs_spark.daemon import installed_first\n"
            f"sys.path[:] = {order}\nimport pyspark\nprint(pyspark.__file__)"
        )
        environment = {**os.environ, "PYTHONPATH": path}
        ran = [sys.executable, "-c", code]
        told = subprocess.run(ran, env=environment, check=True, capture_output=True, text=True)
        assert ("pyspark.zip" in told.stdout) is zips, told.stdout
