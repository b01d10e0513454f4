"""Credentials of boto3's chain that live for seconds (``credential_process``): a job outlives them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from abs_clients.s3.client import close_idle
from abs_core.errors import RefusedError
from abs_services import S3Service
from abs_sinks.s3.testing import open_folder
from abs_testing.case import within
from abs_testing.engine import Run

LIFE = 10
"""Seconds. botocore renews credentials that live for less than ten minutes before each request."""

PROGRAM = """
import datetime, json, os, sys
log, life = sys.argv[1], float(sys.argv[2])
now = datetime.datetime.now(datetime.timezone.utc)
with open(log, "a") as file:
    file.write(f"{now.timestamp()}\\n")
print(json.dumps({
    "Version": 1, "AccessKeyId": os.environ["ABS_TEST_KEY"],
    "SecretAccessKey": open(os.environ["ABS_TEST_SECRET"]).read(),
    "Expiration": (now + datetime.timedelta(seconds=life)).isoformat(),
}))
"""

pytestmark = pytest.mark.services


class Calls:
    """The program's calls, and the file of the secret that it gives."""

    def __init__(self, log: Path, secret: Path) -> None:
        self._log, self.secret = log, secret

    def times(self) -> list[float]:
        return [float(line) for line in self._log.read_text().splitlines()]


@pytest.fixture
def calls(store: S3Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    program, config = tmp_path / "program.py", tmp_path / "config"
    found = Calls(tmp_path / "log", tmp_path / "secret")
    program.write_text(PROGRAM)
    found.secret.write_text(store.secret_key)
    line = f"{sys.executable} {program} {tmp_path / 'log'} {LIFE}"
    config.write_text(f"[profile mine]\ncredential_process = {line}\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    monkeypatch.setenv("ABS_TEST_KEY", store.access_key)
    monkeypatch.setenv("ABS_TEST_SECRET", str(found.secret))
    close_idle()
    yield found
    close_idle()


@pytest.mark.parametrize("protocol", ["2pc", pytest.param("wal", marks=pytest.mark.campaign)])
def test_a_job_outlives_its_credentials(
    store: S3Service, given: Mapping[str, str], prefix: str, protocol: str, calls: Calls
) -> None:
    with open_folder(f"s3://{store.bucket}/{prefix}", {**given, "protocol": protocol}) as harness:
        with closing(harness.new_sink()) as sink:
            run = Run(sink, "job")
            run.epoch(0, [(1, "first")])
            attempt = run.attempt(1).write((2, "before"))
            since = time.time()
            assert within(60, lambda: time.time() > since + LIFE + 1)
            run.commit(1, [attempt.write((3, "after")).pre_commit()])
            assert calls.times()[-1] > since + LIFE, "new credentials were asked for"
        assert sorted(harness.read()) == [(1, "first"), (2, "before"), (3, "after")]


def test_renewed_credentials_are_those_that_requests_are_signed_with(
    store: S3Service, given: Mapping[str, str], prefix: str, calls: Calls
) -> None:
    with open_folder(f"s3://{store.bucket}/{prefix}", {**given, "protocol": "2pc"}) as harness:
        with closing(harness.new_sink()) as sink:
            run = Run(sink, "job")
            run.epoch(0, [(1, "first")])
            calls.secret.write_text("geheim-alt")
            with pytest.raises(RefusedError) as caught:
                run.epoch(1, [(2, "second")])
            assert "geheim" not in str(caught.value)
            calls.secret.write_text(store.secret_key)
        with closing(harness.new_sink()) as sink:
            Run(sink, "job").epoch(1, [(2, "second")])
        assert sorted(harness.read()) == [(1, "first"), (2, "second")]
