"""Is the job exactly-once? `pytest` says no to `append` and yes to `exact`."""

import json
from pathlib import Path

import psycopg
import pytest

from abs_chaos import assert_exactly_once

JOB = Path(__file__).with_name("payments.py")


@pytest.mark.parametrize("way", ["append", "exact"])
def test_every_payment_is_in_the_table_once(way, abs_postgres, abs_job, tmp_path):
    rows = [{"id": n, "amount": n / 100} for n in range(200)]
    (tmp_path / "in").mkdir()
    for start in range(0, 200, 20):  # each file is one epoch
        text = "".join(json.dumps(row) + "\n" for row in rows[start : start + 20])
        (tmp_path / "in" / f"{start:03d}.json").write_text(text)
    with psycopg.connect(abs_postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE payments (id bigint, amount double precision)")

    checkpoint = tmp_path / "checkpoint"
    job = abs_job(JOB, tmp_path, way, checkpoint=checkpoint, env={"DATABASE_URL": abs_postgres})
    job.run_to_end(kills=1, at="committed", seed=7)

    assert_exactly_once(rows, abs_postgres, table="payments", key=["id"])
