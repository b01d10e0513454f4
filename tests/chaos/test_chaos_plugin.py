"""The pytest plugin, as a user's session has it: by its entry point, in a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from abs_services import KafkaService, PostgresService, S3Service
from tests.kit.containers import why_unusable

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "try_your_job"

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]

SESSION = '''
import json
from pathlib import Path
import psycopg, pytest
from abs_chaos import assert_exactly_once

ROWS = [{"id": n, "name": f"n{n}"} for n in range(40)]

def copy(url, folder, doubled):
    """The job: one row after the other; it knows how many are there, or does not."""
    with psycopg.connect(url, autocommit=True) as connection:
        (there,) = connection.execute("select count(*) from target").fetchone()
        for row in ROWS[0 if doubled else there:]:
            connection.execute("insert into target values (%(id)s, %(name)s)", row)
            Path(folder, "written").touch()
        if not Path(folder, "killed").exists():
            __import__("time").sleep(600)

@pytest.fixture
def table(abs_postgres):
    with psycopg.connect(abs_postgres, autocommit=True) as connection:
        connection.execute("create table target (id bigint, name text)")
        yield connection

@pytest.mark.parametrize("doubled", [False, True])
def test_job(doubled, table, abs_postgres, abs_job, tmp_path):
    job = abs_job(copy, abs_postgres, str(tmp_path), doubled)
    assert job.kill_when((tmp_path / "written").exists) == 1
    (tmp_path / "killed").touch()
    assert job.run_to_end() == ()
    assert_exactly_once(ROWS, abs_postgres, table="target", key=["id"], settle=0)

def test_lost_reply(table, abs_postgres, abs_faults):
    from abs_testing.calls import Loss
    relay = abs_faults(abs_postgres)
    with pytest.raises(psycopg.OperationalError):
        with psycopg.connect(relay.address) as connection:
            connection.execute("insert into target values (1, 'n1')")
            relay.arm(1, Loss.REPLY, "COMMIT")
    assert relay.fired
    assert table.execute("select id from target").fetchall() == [(1,)]

def test_too_few_kills(abs_job):
    abs_job(["true"]).run_to_end(kills=1)

@pytest.mark.parametrize("again", range(4))
def test_bucket(again, abs_s3):
    import boto3
    client = boto3.client("s3")
    assert client.list_objects_v2(Bucket=abs_s3.name).get("Contents", []) == []
    client.put_object(Bucket=abs_s3.name, Key="in/a.json", Body=json.dumps(ROWS[0]).encode())
    client.create_multipart_upload(Bucket=abs_s3.name, Key="open")
    client.close()

@pytest.mark.parametrize("again", range(2))
def test_registry(again, abs_registry):
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    with SchemaRegistryClient({"url": abs_registry}) as client:
        client.register_schema("orders-value", Schema(json.dumps("long"), "AVRO"))
        latest = client.get_latest_version("orders-value")
    assert (latest.version, latest.schema_id, latest.schema.schema_str) == (1, 1, '"long"')

def test_topic(abs_kafka):
    from confluent_kafka import Producer
    producer = Producer({"bootstrap.servers": abs_kafka.bootstrap})
    for row in ROWS:
        producer.produce(abs_kafka.name, json.dumps(row))
    assert producer.flush(30) == 0
    assert_exactly_once(ROWS, abs_kafka.url, key=["id"], schema="id BIGINT", settle=0)
'''


PROVIDED = """
import os, psycopg, pytest
from urllib.parse import urlsplit
from abs_core.errors import ConfigError

COUNT = "select count(*) from pg_class where relname = 'mine'"

def test_places_of_their_own(abs_postgres, abs_kafka, abs_s3, abs_postgres_server, abs_kafka_server):
    with psycopg.connect(abs_postgres) as connection:
        assert connection.execute(COUNT).fetchone() == (0,)
        connection.execute("create table mine ()")
    import boto3
    assert abs_s3.name in [b["Name"] for b in boto3.client("s3").list_buckets()["Buckets"]]
    ours = os.environ.get("MINE")
    if ours:
        assert urlsplit(abs_postgres).port == int(ours)
        assert abs_kafka.bootstrap == os.environ["ABS_KAFKA_BOOTSTRAP"]
        with pytest.raises(ConfigError, match="not ours to kill"):
            abs_kafka_server.kill()
    else:
        abs_postgres_server.kill()

def test_the_next_one_finds_none_of_it(abs_postgres):
    with psycopg.connect(abs_postgres) as connection:
        assert connection.execute(COUNT).fetchone() == (0,)
"""


def session(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A run of pytest in that folder, with the plugins that are installed."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=short", *words],
        cwd=folder,
        env={**os.environ, "PYTEST_ADDOPTS": "", "COLUMNS": "200", **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )


def counted(said: str) -> dict[str, int]:
    return {what: int(number) for number, what in re.findall(r"(\d+) (passed|failed|error)", said)}


def test_fixtures_give_places_and_jobs_and_the_audit_as_an_assertion(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tmp_path / "test_mine.py").write_text(SESSION)
    done = session(tmp_path, "-q", "-ra")
    assert counted(done.stdout.splitlines()[-1]) == {"passed": 9, "failed": 2}, done.stdout
    assert re.search(
        r"FAILED test_mine.py::test_job\[True\] .*not exactly once: \d+ dup", done.stdout
    )
    assert "the job ended after 0 of 1 kills" in done.stdout


def test_servers_of_somebody_else_are_used_and_not_touched(
    tmp_path: Path, postgres: PostgresService, kafka: KafkaService, s3: S3Service
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_mine.py").write_text(PROVIDED)
    for server in (postgres, kafka, s3):
        server.start()
    found = {**postgres.env, **kafka.env, **s3.env, "MINE": f"{urlsplit(postgres.url).port}"}
    done = session(tmp_path, "-q", "--abs-services=external", **found)
    assert counted(done.stdout.splitlines()[-1]) == {"passed": 2}, done.stdout
    assert all(server.is_running for server in (postgres, kafka, s3))


def test_servers_in_containers_are_used(tmp_path: Path) -> None:
    if reason := why_unusable():
        pytest.skip(reason)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_mine.py").write_text(PROVIDED)
    done = session(tmp_path, "-q", "--abs-services=docker", MINE="")
    assert counted(done.stdout.splitlines()[-1]) == {"passed": 2}, done.stdout


def test_an_unknown_provider_is_refused_by_the_option(tmp_path: Path) -> None:
    done = session(tmp_path, "--abs-services=cloud")
    assert done.returncode == 4
    assert "native" in done.stderr


def test_the_plugin_is_found_by_its_entry_point_and_costs_a_session_nothing() -> None:
    (found,) = entry_points(group="pytest11", name="abs-sinks")
    loaded = (
        f"import {found.value}, sys; print([m for m in sys.modules if m.split('.')[0] in "
        "('pyarrow', 'duckdb', 'psycopg', 'psutil', 'rich', 'pyspark', 'boto3', 'abs_services')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_our_own_session_does_not_load_it(pytestconfig: pytest.Config) -> None:
    assert not pytestconfig.pluginmanager.has_plugin("abs-sinks")


@pytest.mark.spark
@pytest.mark.parametrize(
    "way",
    # Our sink is killed by the demo in the sample, and the other sessions here pass.
    ["append", pytest.param("exact", marks=pytest.mark.campaign)],
)
def test_the_example_says_no_to_append_and_yes_to_our_sink(
    way: str, tmp_path: Path, postgres: PostgresService
) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "project")
    postgres.start()
    words = ("-q", "-ra", "-k", way, "--abs-services=external")
    done = session(tmp_path / "project", *words, **postgres.env)
    found = counted(done.stdout.splitlines()[-1])
    if way == "exact":
        assert found == {"passed": 1}, done.stdout
        return
    assert found == {"failed": 1}, done.stdout
    assert "FAILED test_payments.py::test_every_payment_is_in_the_table_once[append]" in done.stdout
    assert "not exactly once: 20 duplicate" in done.stdout


def test_the_test_of_the_page_runs(tmp_path: Path, postgres: PostgresService) -> None:
    page = (ROOT / "docs" / "how-to" / "try-your-job.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_page.py").write_text(snippet)
    postgres.start()
    done = session(tmp_path, "-q", "--abs-services=external", **postgres.env)
    assert counted(done.stdout.splitlines()[-1]) == {"passed": 1}, done.stdout
