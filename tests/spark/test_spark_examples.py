"""Each script of ``examples/`` does what it says, and its second run adds nothing."""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from abs_services import KafkaService, S3Service
from tests.kit.kafka_reading import messages
from tests.spark.bucket import Bucket

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
EXAMPLES = {path.stem: path for path in (ROOT / "examples").glob("*.py")}
IDS = Counter(range(1000))


def rows(url: str, table: str) -> Counter[int]:
    with psycopg.connect(url) as connection:
        return Counter(row[0] for row in connection.execute(f"select id from {table}"))


def keys(bootstrap: str, topic: str) -> Counter[int]:
    """Of the topic's committed records."""
    found = messages({"bootstrap.servers": bootstrap}, topic)
    return Counter(int(message.key() or b"") for message in found)


def run_twice(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """In this process, which has a session; what it printed."""
    printed = []
    for _time in range(2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [str(EXAMPLES[name]), str(folder)])
            runpy.run_path(str(EXAMPLES[name]), run_name="__main__")
        printed.append(capsys.readouterr().out)
    return printed


def test_the_example_for_postgres_writes_each_row_once(
    spark: SparkSession,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ABS_POSTGRES_URL", database)
    printed = run_twice("spark_postgres", tmp_path, capsys)
    assert printed == ["1000 rows, 1000 different ids\n"] * 2
    assert rows(database, "example_payments") == IDS


def test_the_example_for_kafka_writes_each_record_once(
    spark: SparkSession,
    kafka: KafkaService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kafka.start()
    monkeypatch.setenv("ABS_KAFKA_BOOTSTRAP", kafka.bootstrap)
    printed = run_twice("spark_kafka", tmp_path, capsys)
    assert printed == ["1000 records, 1000 different keys\n"] * 2
    assert keys(kafka.bootstrap, "example-payments") == IDS


def test_the_example_for_s3_writes_each_row_once(
    spark: SparkSession,
    bucket: Bucket,
    s3: S3Service,
    prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ABS_S3_BUCKET", f"{s3.bucket}/{prefix}")
    monkeypatch.setenv("ABS_S3_ENDPOINT", s3.endpoint)
    printed = run_twice("spark_s3", tmp_path, capsys)
    assert printed == ["1000 rows, 1000 different ids\n"] * 2
    assert Bucket(s3, f"{prefix}/example/payments").ids() == IDS


def test_the_example_for_one_decision_writes_each_row_once_to_each_target(
    spark: SparkSession,
    database: str,
    kafka: KafkaService,
    bucket: Bucket,
    s3: S3Service,
    prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kafka.start()
    monkeypatch.setenv("ABS_POSTGRES_URL", database)
    monkeypatch.setenv("ABS_KAFKA_BOOTSTRAP", kafka.bootstrap)
    monkeypatch.setenv("ABS_S3_BUCKET", f"{s3.bucket}/{prefix}")
    monkeypatch.setenv("ABS_S3_ENDPOINT", s3.endpoint)
    printed = run_twice("spark_epoch", tmp_path, capsys)
    assert printed == ["table: 1000 rows; folder: 1000 rows, 1000 different ids\n"] * 2
    assert rows(database, "example_epoch") == IDS
    assert keys(kafka.bootstrap, "example-epoch") == IDS
    assert Bucket(s3, f"{prefix}/example/epoch").ids() == IDS


def commands(name: str) -> str:
    """The two commands that the script names."""
    said = ast.get_docstring(ast.parse(EXAMPLES[name].read_text())) or ""
    return "".join(f"{line}\n" for line in re.findall(r"^    (.+)$", said, re.MULTILINE))


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_two_commands_start_all_that_an_example_needs(name: str) -> None:
    text = EXAMPLES[name].read_text()
    kinds = [k for k in ("postgres", "kafka", "s3") if re.search(f"ABS_{k}_", text, re.IGNORECASE)]
    assert commands(name) == f'eval "$(abs up {" ".join(kinds)})"\npython examples/{name}.py\n'


@pytest.mark.campaign
def test_an_example_runs_by_its_two_commands(tmp_path: Path) -> None:
    environment = {
        **{n: t for n, t in os.environ.items() if not n.startswith(("ABS_", "AWS_", "PYSPARK"))},
        "ABS_CACHE": str(tmp_path / "cache"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    script = ["bash", "-eu", "-c", commands("spark_postgres") + 'echo "$ABS_POSTGRES_URL"']
    try:
        done = subprocess.run(
            script, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        printed, url = done.stdout.splitlines()
        assert printed == "1000 rows, 1000 different ids"
        assert rows(url, "example_payments") == IDS
    finally:
        down = [str(Path(sys.executable).with_name("abs")), "down", "--delete-data"]
        subprocess.run(down, env=environment, capture_output=True, check=False)
