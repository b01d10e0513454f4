"""The demo's one query to several targets, small: killed, and each target audited."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.demo.kills import planned

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.timeout(600)]


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("route", "protocol", "others"),
    [
        ("epoch", "2pc", {"topic", "bucket"}),
        ("epoch", "wal", {"topic", "bucket"}),
        ("lake", "2pc", {"topic", "iceberg", "delta"}),
    ],
)
def test_one_query_writes_every_flight_to_each_target_once_over_kills(
    route: str, protocol: str, others: set[str]
) -> None:
    """``make demo`` does; what it rests on is tested every day in ``test_spark_epoch_kills``."""
    arguments = ["--route", route, "--days", "120", "--kills", "2", "--seed", "7"]
    main = "from abs_cli.main import main; main()"
    command = [sys.executable, "-c", main, "demo", "--json", "--protocol", protocol]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["clean"], result["shortcomings"]) == (True, [])
    assert len(planned(result["kills_done"])) == 2
    for audit in (result["audit"], *result["audits"].values()):
        assert audit["expected"]["records"] == audit["actual"]["records"] == result["rows"]
    assert set(result["audits"]) == others
    for name in ("table", *others):
        held = [found["found"][name] for found in result["by_epoch"]]
        assert sum(each["expected"] for each in held) == result["rows"]
        assert all(each["actual"] == each["expected"] for each in held)
    assert all(found["committed"] and found["whole"] for found in result["by_epoch"])
