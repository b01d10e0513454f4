"""What the Kafka benchmarks count as right, and how they find another Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.__main__ import Name
from benchmarks.kafka_jobs import EPOCHS, FILES, PARTITIONS, UNCOUNTED, Input, Job
from benchmarks.other_spark import Installed, Session


def test_an_input_has_the_same_rows_for_each_epoch_and_records_of_the_size(tmp_path: Path) -> None:
    given = Input.write(tmp_path, 1001, 100)
    files = sorted(tmp_path.glob("*.parquet"))
    assert len(files) == FILES * (UNCOUNTED + EPOCHS)
    first = pq.read_table(files[0])
    assert first.schema.names == ["key", "value"]
    assert {len(k) + len(v) for k, v in zip(*first.to_pydict().values(), strict=True)} == {
        given.size
    }
    of_epoch = [pq.read_table(path).num_rows for path in files[:FILES]]
    assert sum(of_epoch) == given.rows


@pytest.mark.parametrize(("transactions", "off"), [(True, 0), (False, 0), (True, -1), (False, 1)])
def test_a_run_that_lost_or_doubled_records_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, transactions: bool, off: int
) -> None:
    given, epochs = Input(tmp_path, 1000, 100), UNCOUNTED + EPOCHS
    markers = epochs * FILES * PARTITIONS if transactions else 0
    found = epochs * 1000 + markers + off
    monkeypatch.setattr("benchmarks.kafka_jobs._stable", lambda bootstrap, topic: found)
    job = Job(Session.__new__(Session), "", given, "kafka", transactions)
    if off == 0:
        job._check("topic", [1000] * epochs)
    else:
        with pytest.raises(AssertionError, match="entries in the topic"):
            job._check("topic", [1000] * epochs)


def test_another_spark_gets_all_jars_of_its_folder_in_order(tmp_path: Path) -> None:
    for name in ("b.jar", "a.jar", "readme.txt"):
        (tmp_path / name).touch()
    found = Installed.other(tmp_path / "python", tmp_path)
    assert [Path(jar).name for jar in found.jars] == ["a.jar", "b.jar"]


def test_only_the_comparisons_with_the_jvms_sinks_need_another_spark() -> None:
    assert {name for name in Name if name.needs == "spark"} == {
        Name.SPARK_KAFKA_100,
        Name.SPARK_KAFKA_1000,
        Name.SPARK_LAKE,
    }
