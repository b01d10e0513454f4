"""`abs doctor` looks at all sinks of a job, and at what they need together."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from abs_services import S3Service
from abs_services.native import NativePostgres
from tests.cli.several import NAMES, Several, parsed
from tests.kit.command import abs_
from tests.spark.bucket import Bucket

pytestmark = pytest.mark.services


def test_doctor_looks_at_all_sinks(job: Several) -> None:
    found = parsed("doctor", "--sinks", job.file())
    assert set(found["sinks"]) == set(NAMES)
    assert {one["guarantee"]["protocol"] for one in found["sinks"].values()} == {"2pc"}
    assert found["findings"] == []
    bad = abs_("doctor", "--sinks", job.file(dbtable="nowhere"))
    assert (bad.exit_code, "nowhere" in bad.stdout) == (1, True)


def test_prepared_transactions_of_several_sinks_are_added_up_per_server(
    job: Several, tmp_path: Path
) -> None:
    file = tmp_path / "two.toml"
    table = (
        '[sinks.{0}]\nformat = "abs-postgres"\n'
        'options = {{ url = "{1}", dbtable = "payments", stateschema = "{2}" }}\n'
    )
    apart = table.format("one", job.url, "abs") + table.format("two", job.url, "other")
    file.write_text(apart)
    with psycopg.connect(job.url) as connection:
        most = connection.execute("select current_setting('max_prepared_transactions')::int")
        (room,) = most.fetchone() or (0,)
    tasks = room // 2 + 1  # each alone fits
    found = parsed("doctor", "--sinks", file, "--tasks", tasks)
    assert [one["severity"] for one in found["findings"]] == ["error"]
    assert f"prepares {2 * tasks} transactions" in found["findings"][0]["what"]
    assert not [
        f for s in found["sinks"].values() for f in s["findings"] if f["severity"] == "error"
    ]
    file.write_text(apart.replace("other", "abs"))
    shared = parsed("doctor", "--sinks", file, "--tasks", tasks)
    assert f"prepares {tasks} transactions" in shared["findings"][0]["what"]


def test_doctor_asks_for_wals_prepared_transaction_where_another_system_is_beside(
    store: S3Service, prefix: str, tmp_path: Path
) -> None:
    def file(**kinds: tuple[str, dict[str, str]]) -> Path:
        lines = []
        for name, (kind, options) in kinds.items():
            lines += [f"[sinks.{name}]", f'format = "{kind}"', f"[sinks.{name}.options]"]
            lines += [f"{key} = {json.dumps(text)}" for key, text in options.items()]
        path = tmp_path / "job.toml"
        path.write_text("\n".join(lines))
        return path

    def errors(path: Path) -> list[str]:
        found = parsed("doctor", "--sinks", path)["sinks"]["payments"]["findings"]
        return [one["what"] for one in found if one["severity"] == "error"]

    with NativePostgres(settings={"max_prepared_transactions": "0"}) as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("create table payments (key text, value text)")
        table = {"url": server.url, "dbtable": "payments", "protocol": "wal"}
        payments = ("abs-postgres", table)
        assert errors(file(payments=payments)) == []
        (beside,) = errors(file(payments=payments, items=("abs-s3", Bucket(store, prefix).options)))
        assert "max_prepared_transactions" in beside
