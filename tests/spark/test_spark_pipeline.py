"""A declarative pipeline of Spark (`spark-pipelines run`) writes to a sink of ours: ``create_sink``."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import psycopg
import pytest

from tests.packaging.venvs import LIBRARIES, NEWEST, ROOT, RUNTIME, python_with
from tests.roots import FOLDERS

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.spark,
    pytest.mark.services,
    pytest.mark.timeout(900),
]

SPEC = """\
name: payments
storage: file://{folder}/storage
libraries:
  - glob:
      include: transformations/**
"""
PIPELINE = """\
import os
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
options = {"url": os.environ["ABS_TEST_URL"], "dbtable": "payments", "job": "payments"}
dp.create_sink("payments", "abs-postgres", options)

@dp.append_flow(target="payments")
def rates():
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
"""


def run(folder: Path, url: str, *more: str) -> tuple[int, str]:
    """The exit code of a run of the pipeline, and its log."""
    python = python_with(f"pyspark[connect,pipelines]=={NEWEST}", *RUNTIME, *LIBRARIES)
    (home,) = python.parents[1].glob("lib/python*/site-packages/pyspark")
    given = {
        "ABS_TEST_URL": url,
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("", *FOLDERS)),
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    ended = subprocess.run(
        [str(home / "bin" / "spark-pipelines"), "run", "--spec", "spark-pipeline.yml", *more],
        env={**os.environ, **given},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    return ended.returncode, ended.stdout


def test_a_pipelines_sink_is_exact_when_an_epoch_is_replayed_and_refuses_a_full_refresh(
    tmp_path: Path, database: str
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute('create table payments ("timestamp" timestamptz, value bigint)')

    def values() -> list[int]:
        with psycopg.connect(database, autocommit=True) as connection:
            rows = connection.execute("select value from payments order by 1").fetchall()
        return [value for (value,) in rows]

    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "rates.py").write_text(PIPELINE)
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(folder=tmp_path))
    code, log = run(tmp_path, database)
    assert code == 0, log[-4000:]
    first = values()
    assert first == list(range(len(first)))
    assert len(first) >= 100

    # Spark died between the sink's commit and its own note of it.
    (noted,) = (tmp_path / "storage").rglob("commits/0")
    noted.unlink()
    _, log = run(tmp_path, database)
    assert "committed before; its 100 rows were read and not written again" in log, log[-4000:]
    again = values()
    assert again == list(range(len(again)))
    assert len(again) > len(first)

    code, log = run(tmp_path, database, "--full-refresh-all")
    assert re.search(r"IdentityError: Was the checkpoint of job payments deleted\?", log)
    assert values() == again, "a full refresh begins a new checkpoint: every row would come twice"
