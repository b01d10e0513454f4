"""The installed wheel: executors need no extra but their targets', and what is missing is named.

``BASE`` are the oldest versions that are promised, as runtimes of Spark 3.5 bring them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
import zipfile
from pathlib import Path

import psycopg
import pytest

from abs_cli.explain_error import cases
from abs_core.release import RELEASE
from abs_sinks.door import format_names
from tests.packaging.test_install import OTHERS
from tests.packaging.venvs import POSTGRES, ROOT, installed, python_with, wheel
from tests.spark.other_sparks import OLDEST

pytestmark = pytest.mark.long

JOB = ROOT / "tests" / "packaging" / "epoch_job.py"
NUMPY, PANDAS, PYARROW = OLDEST.libraries
BASE = (NUMPY, "opentelemetry-api>=1.27", PYARROW, "tenacity>=8.2", "xxhash>=3.4")
OLD_SPARK = (PANDAS, f"pyspark=={OLDEST.spark}")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def base(built: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A Python with the base install only, and its environment."""
    python = python_with(*BASE)
    return python, installed(python, built, tmp_path_factory.mktemp("base"))


def run(base: tuple[Path, dict[str, str]], *words: str) -> subprocess.CompletedProcess[str]:
    python, more = base
    environment = {
        n: t for n, t in os.environ.items() if not n.startswith(("PYTHON", "PYSPARK", "SPARK_HOME"))
    }
    return subprocess.run(
        [str(python), *words],
        env={**environment, **more, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        cwd="/",
    )


def test_the_versions_that_are_tested_are_the_oldest_that_are_promised() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    promised = set(project["dependencies"])
    assert {lowest(pinned) for pinned in BASE} == promised
    extras = project["optional-dependencies"]
    assert f"{lowest(PANDAS)},<3" in extras["spark3"]
    assert "pandas>=2.2" in extras["spark"], "mapInArrow asks for it: abs_spark.epoch needs it"


def lowest(pinned: str) -> str:
    """The bound that a version stands for."""
    name, _, version = pinned.partition("==")
    return f"{name}>={version.rsplit('.', 1)[0].removesuffix('.0')}" if version else pinned


def test_the_wheel_asks_for_no_tool_of_people(built: Path) -> None:
    needed = [line for line in metadata(built).splitlines() if line.startswith("Requires-Dist:")]
    base = [line.split()[1].split(">")[0] for line in needed if "extra ==" not in line]
    assert sorted(base) == ["numpy", "opentelemetry-api", "pyarrow", "tenacity", "xxhash"]


def test_no_link_of_a_wheels_readme_leads_nowhere(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a package index there are no other files; a build that knows the address links to them."""
    assert relative_links(built) == []
    monkeypatch.setenv("ABS_PROJECT_URL", "https://code.example/abs-sinks/")
    published = wheel(tmp_path)
    assert relative_links(published) == []
    text = metadata(published)
    page = f"https://code.example/abs-sinks/blob/v{RELEASE}/docs/how-to/targets.md"
    assert f"[Each target]({page})" in text
    assert f"](https://code.example/abs-sinks/raw/v{RELEASE}/docs/images/demo.svg)" in text


def test_a_wheel_says_what_it_brings(built: Path) -> None:
    with zipfile.ZipFile(built) as archive:
        (name,) = [n for n in archive.namelist() if "/sboms/" in n]
        assert json.loads(archive.read(name))["bomFormat"] == "CycloneDX"


def metadata(built: Path) -> str:
    with zipfile.ZipFile(built) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        return archive.read(name).decode()


def relative_links(built: Path) -> list[str]:
    """Those of its README."""
    return re.findall(r"\]\((?!https?://)[^)]+\)", metadata(built))


def test_the_commands_wheel_has_each_page_that_explain_error_names(tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel(tmp_path, OTHERS["abs-sinks-cli"])) as archive:
        names = set(archive.namelist())
    pages = {(case.more or "reference/errors.md").split("#")[0] for case in cases()}
    assert {page for page in pages if f"abs_cli/docs/{page}" not in names} == set()


def test_the_base_install_is_imported_without_any_extra(base: tuple[Path, dict[str, str]]) -> None:
    modules = "abs_core, abs_core.coordinator, abs_clients.options, abs_sinks.options, abs_spark"
    done = run(base, "-c", f"import {modules}; import abs_sinks.rowhash, abs_clients.arrow")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("format_", format_names())
def test_a_sink_whose_extra_is_missing_names_it(
    base: tuple[Path, dict[str, str]], format_: str
) -> None:
    done = run(base, "-c", f"import abs_spark; abs_spark.sink('{format_}', {{}})")
    assert done.returncode == 1
    extra = format_.removeprefix("abs-")
    assert f"pip install 'abs-sinks[{extra}]'" in done.stderr.splitlines()[-1]


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.services
@pytest.mark.timeout(1500)
def test_an_epoch_goes_to_postgres_on_the_oldest_libraries_and_spark(
    built: Path, database: str, tmp_path: Path
) -> None:
    python = python_with(*BASE, *OLD_SPARK, *POSTGRES)
    here = python, installed(python, built, tmp_path)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table t (id bigint)")
        folder = tmp_path / "input"
        folder.mkdir()
        for number in range(2):
            lines = "".join(f'{{"id": {number * 10 + n}}}\n' for n in range(10))
            (folder / f"{number}.json").write_text(lines)
        done = run(here, str(JOB), database, str(tmp_path))
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        found = [row[0] for row in connection.execute("select id from t order by id")]
    assert found == list(range(20))
    assert f"{OLDEST.spark} {tmp_path}" in done.stdout
    assert "loaded:\n" in done.stdout, "nothing of another extra is loaded"
