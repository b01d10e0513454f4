"""`abs in-doubt`, `abs register`, `abs doctor` on a bucket: they show the truth, break no promise."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import Result

from abs_clients.s3.client import close_idle
from abs_core.errors import OptionError, ProtocolError
from abs_services import S3Service
from abs_sinks.s3 import S3Register
from abs_sinks.s3.testing import FolderHarness, open_folder
from abs_testing.case import JOB, Case, raises, rows
from abs_testing.cuts import Cut, Halted
from tests.kit.command import abs_

pytestmark = pytest.mark.services

ROWS = rows(0, 3)


@pytest.fixture(params=["2pc", "wal", "idempotent"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def harness(store: S3Service, prefix: str, protocol: str) -> Iterator[FolderHarness]:
    given = {"endpoint": store.endpoint, "region": store.region, "protocol": protocol}
    with open_folder(f"s3://{store.bucket}/{prefix}", given) as harness:
        yield harness


def test_what_is_in_doubt_is_listed_with_its_size_and_swept_as_a_dry_run_said(
    harness: FolderHarness,
) -> None:
    case = Case(harness)
    case.run().tasks(0, ROWS)
    (listed,) = in_doubt(harness)
    assert (listed["job"], listed["epoch"], listed["partition"]) == (JOB, 0, 0)
    assert "under way" in listed["fate"]
    assert listed["size"] > 100
    assert 0 <= listed["age_seconds"] < 600
    done(harness, "in-doubt", "abort", JOB)
    assert len(in_doubt(harness)) == 1, "its run may be alive"

    # A newer run that dies before it sweeps.
    raises(Halted, lambda: case.run(cut=Cut("abort")).coordinator.begin(0))
    dry = json.loads(done(harness, "in-doubt", "abort", JOB, "--dry-run", "--json"))
    assert [each["handle"] for each in dry] == [listed["handle"]]
    assert "will be aborted" in done(harness, "in-doubt", "abort", JOB, "--dry-run")
    assert [each["fate"] for each in in_doubt(harness)] == ["will be aborted"], "it stays"
    done(harness, "in-doubt", "abort", JOB)
    assert in_doubt(harness) == []
    case.run().epoch(0, ROWS)
    case.finished(ROWS, when="after `abs in-doubt abort`")
    case.close()


@pytest.mark.parametrize("protocol", ["2pc", "wal"], indirect=True)
def test_what_is_decided_is_committed_and_never_aborted(harness: FolderHarness) -> None:
    case = Case(harness)
    raises(Halted, lambda: case.run(cut=Cut("commit")).epoch(0, ROWS))
    assert "decided: will be committed" in {each["fate"] for each in in_doubt(harness)}
    done(harness, "in-doubt", "abort", JOB)
    done(harness, "in-doubt", "commit", JOB)
    case.holds(ROWS, when="after `abs in-doubt commit`")
    case.run().epoch(0, ROWS)  # the replay sweeps
    case.finished(ROWS, when="after `abs in-doubt commit` and a replay")
    case.close()


def test_what_a_lost_register_left_is_aborted_as_an_orphan_only(harness: FolderHarness) -> None:
    case = Case(harness)
    case.run().tasks(0, ROWS)
    S3Register(harness.options).retire(JOB)
    (listed,) = in_doubt(harness)
    assert "not here" in listed["fate"]
    assert run(harness, "in-doubt", "abort", JOB).exit_code != 0
    assert len(in_doubt(harness)) == 1, "nobody has named it"
    done(harness, "in-doubt", "abort", JOB, "--orphan", listed["handle"])
    assert in_doubt(harness) == []
    assert harness.keys() == harness.uploads() == []
    case.close()


def test_registers_are_listed_shown_and_retired(harness: FolderHarness) -> None:
    case = Case(harness)
    case.run().epoch(0, ROWS)
    (listed,) = json.loads(done(harness, "register", "list", "--json"))
    age = datetime.now(UTC) - datetime.fromisoformat(listed["changed"])
    assert abs(age.total_seconds()) < 300
    assert (listed["job"], listed["frontier"], listed["target"]) == (JOB, 0, harness.path)
    shown = json.loads(done(harness, "register", "show", JOB, "--json"))
    assert shown == listed
    if harness.options.protocol == "idempotent":
        refused = run(harness, "register", "retire", JOB, "--yes")
        assert isinstance(refused.exception, ProtocolError), "readers go by its manifests"
    else:
        done(harness, "register", "retire", JOB, "--yes")
        assert json.loads(done(harness, "register", "list", "--json")) == []
    case.holds(ROWS, when="after `abs register retire`")
    case.close()


@pytest.mark.parametrize("protocol", ["2pc"], indirect=True)
class TestDoctor:
    @pytest.fixture
    def doctor(self, harness: FolderHarness) -> Callable[..., Result]:
        given = {"path": harness.path, "endpoint": str(harness.options.server.endpoint)}

        def run_doctor(*arguments: str, **more: str) -> Result:
            pairs = [f"{name}={text}" for name, text in {**given, **more}.items()]
            options = [word for pair in pairs for word in ("-o", pair)]
            return abs_("doctor", *options, "--json", *arguments)

        return run_doctor

    def test_a_job_that_would_run_is_shown_with_its_guarantee_and_nothing_stays(
        self, doctor: Callable[..., Result], harness: FolderHarness
    ) -> None:
        result = doctor(job="flights")
        assert result.exit_code == 0, result.output
        document = json.loads(result.stdout)
        assert document["guarantee"]["protocol"] == "2pc"
        assert document["findings"] == []
        assert harness.leftovers("flights") == []
        assert harness.uploads() == []

    def test_keys_that_the_server_refuses_are_an_error_and_not_shown(
        self, doctor: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-right-one")
        close_idle()
        result = doctor()
        monkeypatch.undo()
        close_idle()
        assert result.exit_code == 1, result.output
        assert "credentials" in json.loads(result.stdout)["findings"][0]["remedy"].lower()
        assert "not-the-right-one" not in result.output

    def test_input_that_the_format_cannot_hold_is_an_error(
        self, doctor: Callable[..., Result], tmp_path: Path
    ) -> None:
        pq.write_table(pa.table({"tags": [["a"]]}), tmp_path / "input.parquet")
        result = doctor("--sample", str(tmp_path), "--format", "abs-s3", fileformat="csv")
        assert result.exit_code == 1, result.output
        assert "tags" in json.loads(result.stdout)["findings"][-1]["what"]

    def test_a_wrong_option_is_refused_with_the_nearest_one(
        self, doctor: Callable[..., Result]
    ) -> None:
        result = doctor(fileformt="csv")
        assert isinstance(result.exception, OptionError)
        assert "fileformat" in str(result.exception)


def in_doubt(harness: FolderHarness) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(run(harness, "in-doubt", "list", "--json").stdout)
    return listed


def done(harness: FolderHarness, *arguments: str) -> str:
    result = run(harness, *arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def run(harness: FolderHarness, *arguments: str) -> Result:
    more = urlencode(
        {"endpoint": harness.options.server.endpoint, "region": harness.options.server.region}
    )
    return abs_(*arguments, "--url", f"{harness.path}?{more}")
