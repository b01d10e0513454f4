"""Is every order in the topic once? `pytest` says no to Spark's own sink and yes to ours."""

import json
from pathlib import Path

import pytest

from abs_chaos import assert_exactly_once

JOB = Path(__file__).with_name("orders.py")


@pytest.mark.parametrize("sink", ["kafka", "abs-kafka"])
def test_every_order_is_in_the_topic_once(sink, abs_kafka, abs_job, tmp_path):
    rows = [{"id": n, "item": f"item {n}"} for n in range(200)]
    (tmp_path / "in").mkdir()
    for start in range(0, 200, 20):  # each file is one epoch
        text = "".join(json.dumps(row) + "\n" for row in rows[start : start + 20])
        (tmp_path / "in" / f"{start:03d}.json").write_text(text)

    to = (tmp_path, abs_kafka.bootstrap, abs_kafka.name, sink)
    job = abs_job(JOB, *to, checkpoint=tmp_path / "checkpoint")
    job.run_to_end(kills=1, at="committed", seed=7)

    assert_exactly_once(rows, abs_kafka.url, key=["id"], schema="id BIGINT, item STRING")
