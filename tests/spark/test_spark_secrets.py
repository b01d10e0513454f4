"""No secret of a query is in what Spark keeps or shows of it (I9)."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import pytest

from tests.spark import jvm
from tests.spark.epoch_world import EpochWorld
from tests.spark.jobs import shown

pytestmark = [pytest.mark.spark, pytest.mark.services]

PART = 10
"""So many characters in a row of a secret are no accident."""


def forms(secret: str) -> set[bytes]:
    """A secret as it may stand somewhere: whole, percent-encoded, in base64, or a part of it."""
    parts = {secret[n : n + PART] for n in range(len(secret) - PART + 1)}
    whole = {quote(secret, safe=""), b64encode(secret.encode()).decode()}
    return {form.encode() for form in parts | whole}


def without_password(url: str) -> str:
    parts = urlsplit(url)
    at = f"{parts.username}@{parts.netloc.rpartition('@')[2]}"
    return urlunsplit(parts._replace(netloc=at))


def test_no_secret_is_in_what_spark_keeps_or_shows_of_a_query(
    world: EpochWorld, tmp_path: Path
) -> None:
    of_kafka = f"{secrets.token_hex(8)}/@%: {secrets.token_hex(8)}"
    of_tokens = f"{secrets.token_hex(8)}/@%: {secrets.token_hex(8)}"
    world.kafka_options |= {
        "kafka.sasl.username": "app",
        "kafka.sasl.password": of_kafka,
        "kafka.sasl.oauthbearer.client.secret": of_tokens,
    }
    of_postgres = urlsplit(world.files.url).password
    of_s3 = world.bucket.secret_key
    assert of_postgres
    sinks = [world.postgres(), world.to_kafka(), world.to_s3()]
    given = [
        {"format": s.format, "options": dict(s.options), "name": s.name, "select": list(s.select)}
        for s in sinks
    ]
    for one in given:
        if not one["select"]:
            del one["select"]
    # A program may hold a secret in its arguments: its line is none that may be shown.
    by_program = f"echo {shlex.quote(of_postgres)}"
    url = without_password(sinks[0].options["url"])
    given[0]["options"] = {**sinks[0].options, "url": url, "passwordcommand": by_program}
    world.files.add_files(range(1))
    folder = world.files.folder
    (folder / "scratch").mkdir(exist_ok=True)

    ran = subprocess.run(
        [sys.executable, shown.__file__, str(folder)],
        env={
            **os.environ,
            "ABS_TEST_SINKS": json.dumps(given),
            "ABS_LOG": "progress",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            **jvm.environment(),
        },
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=300,
    )
    said = ran.stdout + ran.stderr
    assert ran.returncode == 0, said[-6000:].decode(errors="replace")
    assert b"rows pre-committed" in said, "the tasks' log is in what is looked through"
    assert {found.total() for found in world.ids().values()} == {80}, "by both ways"

    looked = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.relative_to(folder).parts[0] != "input"
    }
    kinds = {name.split("/")[0] for name in looked}
    assert {"events", "shown", "checkpoint-epoch", "checkpoint-alerts"} <= kinds
    assert any(b"SparkListenerJobStart" in content for content in looked.values())
    for name, content in {**looked, "the driver's log": said}.items():
        for secret in (of_kafka, of_tokens, of_postgres, of_s3):
            found = [form for form in forms(secret) if form in content]
            assert not found, f"{name} shows {len(found)} forms of a secret"


def test_the_look_finds_each_form() -> None:
    secret = "abcdefgh/@%: ijklmnop"
    for shown_as in (secret, quote(secret, safe=""), secret[3:15], f"x{secret[:PART]}y"):
        assert any(form in shown_as.encode() for form in forms(secret))
    assert not any(form in b"abcdefgh" for form in forms(secret))
