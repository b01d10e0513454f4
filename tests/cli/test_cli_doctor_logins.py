"""`abs doctor` says for each server who the job is logged in as, and until when; never a secret."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from typer.testing import Result

from abs_clients import logins
from abs_clients.kafka.cluster import close_clusters
from abs_clients.kafka.login import told_login
from abs_clients.kafka.settings import Settings
from abs_clients.s3.client import close_idle
from abs_core.model import Finding, Severity
from abs_services import PostgresService, S3Service
from tests.kit.command import abs_
from tests.kit.kafka import make_topic
from tests.kit.kafka_tokens import TokenKafka
from tests.kit.token_server import TokenServer


def doctor(**options: str) -> tuple[Result, Finding]:
    given = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    done = abs_("doctor", *given, "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    [told] = json.loads(done.stdout)["logins"]
    return done, Finding(**told)


def days_from_now(days: float) -> datetime:
    return datetime.now(UTC) + timedelta(days=days)


@pytest.mark.services
@pytest.mark.parametrize(
    ("days", "severity"), [(None, Severity.NOTE), (300, Severity.NOTE), (3, Severity.WARNING)]
)
def test_a_role_of_postgresql_is_named_with_the_end_of_its_password(
    database: str, postgres: PostgresService, days: float | None, severity: Severity
) -> None:
    role = urlsplit(database).username
    until = "infinity" if days is None else f"{days_from_now(days):%Y-%m-%d %H:%M:%S+00}"
    with psycopg.connect(database, autocommit=True) as session:
        session.execute("create table t (id int)")
    with psycopg.connect(postgres.admin_url, autocommit=True) as session:
        session.execute(f"alter role {role} valid until '{until}'")
        try:
            done, found = doctor(url=database, dbtable="t")
        finally:
            session.execute(f"alter role {role} valid until 'infinity'")
    assert f"logged in as {role}" in found.what
    assert found.severity == severity
    assert ("VALID UNTIL" in found.what) == (days is not None)
    if days is not None:
        assert f"{days_from_now(days):%Y-%m-%d}" in found.what
    assert str(urlsplit(database).password) not in done.output


def test_what_has_ended_is_told_as_such() -> None:
    told = logins.told("here", "me", "its password", days_from_now(-1).timestamp())
    assert (told.severity, "its password has ended" in told.what) == (Severity.WARNING, True)
    assert "password" not in logins.told("here", "me", "its password").what


@pytest.mark.services
def test_a_token_for_kafka_is_named_by_its_subject_and_its_end() -> None:
    with TokenServer(life=300) as server, TokenKafka(server) as kafka:
        make_topic(Settings.of({"bootstrap.servers": kafka.bootstrap}), "t")
        given = server.settings(kafka.token_bootstrap)
        done, found = doctor(topic="t", **{f"kafka.{n}": v for n, v in given.items()})
        assert f"client {server.client}, subject {server.client} (OAUTHBEARER)" in found.what
        assert "is renewed before" in found.what
        assert f"{datetime.now(UTC) + timedelta(seconds=200):%Y-%m-%d}" in found.what
        assert server.secret not in done.output
        assert not [token for token in server.tokens if token in done.output]
        close_clusters()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="it makes the certificate")
@pytest.mark.parametrize(
    ("days", "severity"), [(365, Severity.NOTE), (2, Severity.WARNING)], ids=["long", "short"]
)
def test_a_certificate_is_named_by_its_subject_and_its_end(
    tmp_path: Path, days: int, severity: Severity
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    make += ["-nodes", "-days", str(days), "-subj", "/O=Example/CN=loader"]
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    for shown in (
        {"ssl.certificate.location": str(certificate)},
        {"ssl.certificate.pem": certificate.read_text()},
    ):
        told = told_login(
            Settings.of({"bootstrap.servers": "a:1", "security.protocol": "ssl", **shown})
        )
        assert "organizationName=Example, commonName=loader (certificate)" in told.what
        assert f"{days_from_now(days):%Y-%m-%d}" in told.what
        assert told.severity is severity
    gone = {"ssl.certificate.location": str(tmp_path / "gone.pem")}
    given = {"bootstrap.servers": "a:1", "security.protocol": "ssl", **gone}
    assert str(tmp_path / "gone.pem") in told_login(Settings.of(given)).what


@pytest.fixture
def session_of_an_hour(
    store: S3Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    ends = f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    program, config = tmp_path / "program.py", tmp_path / "config"
    program.write_text(
        "import json, os\n"
        "print(json.dumps({'Version': 1, 'AccessKeyId': os.environ['ABS_TEST_KEY'], "
        f"'SecretAccessKey': os.environ['ABS_TEST_SECRET'], 'Expiration': '{ends}'}}))\n"
    )
    config.write_text(f"[profile mine]\ncredential_process = {sys.executable} {program}\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    monkeypatch.setenv("ABS_TEST_KEY", store.access_key)
    monkeypatch.setenv("ABS_TEST_SECRET", store.secret_key)
    close_idle()
    yield ends
    close_idle()


@pytest.mark.services
def test_credentials_for_s3_are_named_by_their_way_and_their_end(
    store: S3Service, session_of_an_hour: str
) -> None:
    path = f"s3://{store.bucket}/doctor-{secrets.token_hex(4)}"
    done, found = doctor(path=path, endpoint=store.endpoint)
    assert "boto3 finds by custom-process" in found.what
    assert session_of_an_hour.replace("T", " ").rstrip("Z") in found.what
    assert store.secret_key not in done.output
