"""Each recipe of docs/how-to/running-on-spark.md, as it stands there, on a cluster of this test's own.

Only places are put in: the folder of the job, the cluster, the wheel of this checkout.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyspark
import pytest

from abs_services.processes import ProcessId
from abs_services.reaper import REAPER
from tests.packaging.venvs import LIBRARIES, RUNTIME, connect, python_with, wheel, with_wheel
from tests.spark.cluster import Cluster
from tests.spark.jobs.connect_epochs import WORKER
from tests.spark.jobs.stream_files import WORKER_TRIES

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.timeout(1500)]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "running-on-spark.md"
ROWS = 30


def block(language: str, mark: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (one,) = [text for text in found if mark in text]
    return str(one)


JOB = block("python", "SparkSession.builder")
VENV = block("sh", "PYSPARK_PYTHON=/opt/job/venv/bin/python /opt/job/venv")
ARCHIVES = block("sh", "--archives")
PY_FILES = block("sh", "--py-files")
CONNECT_SERVER = block("sh", "start-connect-server")
SETTING = block("python", "maxBytesPerBatch")
"""Run by test_spark_snippets.py, in a session that is there."""

OLDEST_CONNECT = "4.0.2"
SCRIPT = 'start-connect-server.sh"'
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
WITHOUT_SCRIPT = f'spark-daemon.sh" submit {SERVER} 1'
"""What the page says for a release whose package has no script."""
ROUTES = ("epoch", pytest.param("format", marks=pytest.mark.campaign))
BY_FORMAT = 'orders.writeStream.format("abs-postgres").options(url=url, dbtable="orders")'
"""What the page says of the recipes: they hold for a format, too."""


class Place:
    """The folder that a recipe calls /opt/job, with the job and its input, and its table."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        (folder / "data" / "orders").mkdir(parents=True)
        lines = "".join(f'{{"id": {n}, "item": "item {n}"}}\n' for n in range(ROWS))
        (folder / "data" / "orders" / "0.json").write_text(lines)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("create table orders (id bigint, item text)")

    def use(self, python: Path) -> None:
        """What a recipe calls /opt/job/venv is this Python's."""
        (self.folder / "venv").symlink_to(python.parents[1])

    def run(self, recipe: str, route: str, **environment: str) -> str:
        """Run a recipe by a shell; what it said, if it went well.

        Again where Spark had no Python worker in time, as ``stream_files.run_to_end`` does.
        """
        by_epoch = re.compile(r"orders\.writeStream\.foreachBatch\(.*?\n    \)", re.DOTALL)
        job, found = by_epoch.subn(BY_FORMAT, JOB)
        assert found == 1
        (self.folder / "job.py").write_text(JOB if route == "epoch" else job)
        clean = {
            n: t
            for n, t in os.environ.items()
            if not n.startswith(("PYTHON", "PYSPARK", "SPARK_HOME"))
        }
        for _ in range(WORKER_TRIES):
            ended = subprocess.run(
                ["bash", "-euc", recipe.replace("/opt/job", str(self.folder))],
                env={**clean, "URL": self.url, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
                cwd=self.folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=900,
            )
            said = ended.stdout + ended.stderr
            if WORKER not in said:
                break
        assert ended.returncode == 0, said[-6000:]
        return said

    def holds(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            found = [row[0] for row in connection.execute("select id from orders order by id")]
        assert found == list(range(ROWS))


@pytest.fixture
def place(tmp_path: Path, database: str) -> Place:
    folder = tmp_path / "job"
    folder.mkdir()
    return Place(folder, database)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster", workers=1) as cluster:
        yield cluster


HOME = Path(pyspark.__file__).parent
"""Spark as it is installed on the machine that submits."""
SUBMIT = {"SPARK_HOME": str(HOME), "PATH": f"{HOME / 'bin'}:{os.environ['PATH']}"}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.campaign
def test_a_virtual_environment_that_is_not_activated(place: Place, route: str) -> None:
    place.use(Path(sys.executable))
    place.run(VENV, route=route)
    place.holds()


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.campaign
def test_a_packed_environment(place: Place, cluster: Cluster, built: Path, route: str) -> None:
    place.use(with_wheel(python_with(*RUNTIME, *LIBRARIES, of="packed"), built))
    place.run(ARCHIVES, route=route, MASTER=cluster.url, **SUBMIT)
    place.holds()


@pytest.mark.campaign
def test_the_wheel_by_py_files(place: Place, cluster: Cluster, built: Path) -> None:
    python = str(python_with(*RUNTIME, *LIBRARIES))
    given = {"MASTER": cluster.url, "WHEEL": str(built), "PYSPARK_PYTHON": python}
    place.run(PY_FILES, route="epoch", **given, **SUBMIT)
    place.holds()


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.campaign
def test_a_connect_server(place: Place, built: Path, route: str) -> None:
    python = with_wheel(python_with(*connect(), of="wheel"), built)
    on_a_connect_server(place, python, CONNECT_SERVER, route)


@pytest.mark.campaign
def test_a_connect_server_of_the_oldest_release_that_has_one(place: Place, built: Path) -> None:
    assert f"`{WITHOUT_SCRIPT}` in place of `{SCRIPT}`" in PAGE.read_text()
    assert SCRIPT in CONNECT_SERVER
    python = with_wheel(python_with(*connect(OLDEST_CONNECT), of="wheel"), built)
    recipe = CONNECT_SERVER.replace(SCRIPT, WITHOUT_SCRIPT)
    on_a_connect_server(place, python, recipe, "epoch")


def on_a_connect_server(place: Place, python: Path, recipe: str, route: str) -> None:
    place.use(python)
    library = python.parents[1] / "lib" / f"python3.{sys.version_info[1]}"
    home = library / "site-packages" / "pyspark"
    pids = place.folder / "pids"
    given = {"SPARK_HOME": str(home), "SPARK_PID_DIR": str(pids), "SPARK_LOG_DIR": str(pids)}
    try:
        for line in recipe.splitlines():  # a server is started once
            place.run(line, route=route, **given)
        place.holds()
    finally:
        for pid in pids.glob("*.pid"):
            found = ProcessId.of(int(pid.read_text()))
            if found is not None:
                REAPER.register(found)
        subprocess.run(
            [str(home / "sbin" / "spark-daemon.sh"), "stop", SERVER, "1"],
            env={**os.environ, **given},
            check=False,
            capture_output=True,
        )


def test_every_block_of_the_page_is_run() -> None:
    shown = re.findall(r"^```\w+\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert sorted(shown) == sorted([JOB, VENV, ARCHIVES, PY_FILES, CONNECT_SERVER, SETTING])
