"""Readers stop at the end of one epoch in every target, through kills of the job."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import abs_spark
from abs_cli.output import exit_code
from abs_core.crash import CrashPoint
from abs_core.errors import AbsError, ConfigError, NotYetError
from abs_spark.foreach.spec import EpochSink
from tests.kit.command import abs_
from tests.spark.drivers import killed_at
from tests.spark.jobs.stream_files import WORKER_TRIES, run_to_end
from tests.spark.three import FILES, ROWS, Three, expected

pytestmark = [pytest.mark.spark, pytest.mark.services]


def sinks_of(three: Three) -> list[EpochSink]:
    """The job's sinks, as its own program has them."""
    made = []
    for given in three.job().sinks:
        more = {"url": three.files.url} if given["format"] == "abs-postgres" else {}
        made.append(abs_spark.sink(**{**given, "options": {**given["options"], **more}}))
    return made


def sinks_file(three: Three, folder: Path) -> Path:
    """The same for commands."""
    lines = ['job = "job"', 'register = "rows"']
    for sink in sinks_of(three):
        pairs = ", ".join(f"{json.dumps(n)} = {json.dumps(v)}" for n, v in sink.options.items())
        lines += [f"[sinks.{sink.name}]", f'format = "{sink.format}"', f"options = {{ {pairs} }}"]
    path = folder / "sinks.toml"
    path.write_text("\n".join(lines))
    return path


def ids(rows: DataFrame, column: str = "id") -> Counter[int]:
    """The values of a column; read again where Spark had no Python worker in time, as in ``ended``."""
    texts = rows.selectExpr(f"cast({column} as string)")
    for left in reversed(range(WORKER_TRIES)):
        try:
            return Counter(int(row[0]) for row in texts.collect())
        except PySparkException as error:
            if left == 0 or "failed to connect back" not in str(error):
                raise
    raise AssertionError


def holds_each_epoch(spark: SparkSession, three: Three) -> None:
    """What readers see of each epoch is what its input and that of all before it held."""
    sinks = sinks_of(three)
    for epoch in range(FILES):
        at = abs_spark.cut(sinks, job="job", epoch=epoch)
        wanted = expected(epoch + 1)
        assert ids(at.read(spark, "lake")) == wanted, f"the table as of epoch {epoch}"
        assert ids(at.read(spark, "events"), "value") == wanted, f"the topic as of epoch {epoch}"
        with pytest.raises(ConfigError, match="no earlier states"):
            at.read(spark, "rows")


def code(*words: str) -> int:
    """The exit code of a command, as its process ends."""
    made = abs_(*words)
    return exit_code(made.exception) if isinstance(made.exception, AbsError) else made.exit_code


def shown(path: Path) -> tuple[int, dict[str, Any]]:
    """What ``abs epochs`` tells."""
    said = abs_("epochs", "job", "--sinks", str(path), "--json")
    return said.exit_code, json.loads(said.stdout)


@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize(
    ("point", "known"),
    [
        (CrashPoint.BETWEEN_COMMITS, True),
        (CrashPoint.AFTER_COMMIT, True),
        (CrashPoint.AFTER_FINISH, False),
        (CrashPoint.AFTER_PRE_COMMIT, False),
    ],
)
def test_through_a_kill_every_epoch_is_told_waited_for_and_read_as_it_was(
    spark: SparkSession,
    new_three: Callable[[str], Three],
    tmp_path: Path,
    kind: str,
    point: CrashPoint,
    known: bool,
) -> None:
    three = new_three(kind)
    path, sinks = sinks_file(three, tmp_path), sinks_of(three)
    words = ("wait", "job", "--sinks", str(path), "--timeout", "0")
    three.files.add_files(range(2), ROWS)
    assert code(*words, "--latest") == 5, "the job has no register yet"
    killed_at(point, 2, three.job(), three.files.folder / "killed", three.files.url)
    ended, told = shown(path)
    assert ended == (1 if told["decided_and_open"] else 0)
    assert bool(told["decided_and_open"]) == known, "an epoch is decided and not finished"
    finished = told["finished_up_to"]
    after = 0 if finished is None else finished + 1
    assert code(*words, "--epoch", str(after)) == 4, "it is not finished in all targets"
    with pytest.raises(NotYetError):
        abs_spark.cut(sinks, job="job", epoch=after)
    three.files.add_files(range(2, FILES), ROWS)
    before = datetime.now(UTC)
    run_to_end(spark, three.job(), three.files.url)
    assert code(*words, "--epoch", str(FILES - 1)) == 0
    assert abs_spark.wait(sinks, job="job", timeout=0) == FILES - 1
    later = abs_spark.wait(sinks, job="job", after=before, timeout=0)
    assert later >= after, "an epoch whose input was read before the time counts"
    with pytest.raises(NotYetError):
        abs_spark.wait(sinks, job="job", after=before + timedelta(hours=1), timeout=0)
    ended, told = shown(path)
    assert ended == 0
    assert [each["epoch"] for each in told["epochs"]] == list(range(FILES))
    for each in told["epochs"]:
        assert each["decided"] <= each["finished"]
        assert each["rows"] == 3 * ROWS, "the sum over the sinks"
        assert [at["rows"] for at in each["targets"]] == [ROWS] * 3
    holds_each_epoch(spark, three)
    # A replay changes nothing of it.
    three.files.forget_commits(1)
    run_to_end(spark, replace(three.job()), three.files.url)
    holds_each_epoch(spark, three)
