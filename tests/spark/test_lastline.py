"""What a user is told at last, and where this PySpark has no Python sinks; no Spark runs."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import abs_spark
from abs_core.errors import ConfigError, SchemaError
from abs_spark.hooks import sentence_of

_REFUSED = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: requirement failed: "
    "{} does not support Update mode. SQLSTATE: XXKST"
)


def test_the_last_error_of_ours_is_told() -> None:
    text = (
        "abs_core.errors.A: first.\n at x\nabs_core.errors.UnavailableError: gone. What to do: x\n"
    )
    assert sentence_of(RuntimeError(text)) == "UnavailableError: gone. What to do: x"
    assert sentence_of(RuntimeError("something of a user's own")) is None


def test_the_columns_and_the_remedy_of_a_misfit_are_on_the_last_line() -> None:
    columns = "".join(f'\n  - column "{name}" is not in the table' for name in "ab")
    error = SchemaError(
        f"The input does not fit table t, nothing was written:{columns}", remedy="drop them."
    )
    text = f"  File x\nabs_core.errors.SchemaError: {error}\n\n\tat org.apache.spark.x(y.scala:3)\n"
    assert sentence_of(RuntimeError(text)) == (
        'SchemaError: The input does not fit table t, nothing was written: column "a" is not in the '
        'table; column "b" is not in the table [ABS-SCHEMA] What to do: drop them.'
    )


@pytest.mark.parametrize("after", ["\n\tat org", "\n\nJVM", "\nTraceback", "\n=== Streaming"])
def test_a_later_errors_remedy_is_not_told_as_the_first_ones(after: str) -> None:
    text = f"abs_core.errors.A: gone.{after} x\nOther: y. What to do: z"
    assert sentence_of(RuntimeError(text)) == "A: gone."


@pytest.mark.parametrize("name", ["abs-postgres", "abs-kafka", "abs-s3"])
def test_sparks_own_refusal_of_update_is_followed_by_what_to_do(name: str) -> None:
    sentence = sentence_of(RuntimeError(_REFUSED.format(name)))
    assert sentence is not None
    assert sentence.startswith(f"OptionError: {name}: ")
    assert "What to do: give abs_spark.epoch to foreachBatch" in sentence
    assert sentence_of(RuntimeError(_REFUSED.format("parquet"))) is None


def test_a_driver_that_lost_its_checkpoint_to_another_one_is_told_who_took_over() -> None:
    text = "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. SQLSTATE: 40000"
    sentence = sentence_of(RuntimeError(text))
    assert sentence is not None
    assert "another driver runs this query on the same checkpoint, and has taken over" in sentence


def test_where_pyspark_has_no_python_sinks_the_way_round_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "abs_spark.discovery", raising=False)
    monkeypatch.setitem(sys.modules, "pyspark.sql.datasource", None)  # as on PySpark 3.5
    session: Any = object()
    with pytest.raises(ConfigError, match=r"need PySpark 4\.1") as refused:
        abs_spark.register(session)
    assert "abs_spark.epoch" in refused.value.remedy


_GIVEN = {"kafka.bootstrap.servers": "h:9092", "topic": "t"}
_CALLS = {
    "sink": f"abs_spark.sink('abs-kafka', {_GIVEN})",
    "epoch": f"""
from abs_spark.foreach.spec import EpochSink
abs_spark.epoch(EpochSink("abs-kafka", {_GIVEN}), checkpointLocation="/c")
""",
    "register": """
from unittest.mock import MagicMock
abs_spark.check_python = lambda spark: None
abs_spark.register(MagicMock())
""",
}
_EFFECTS = """
import sys, threading
hook, ends = sys.excepthook, len(threading._threading_atexits)
import abs_spark
assert (sys.excepthook, len(threading._threading_atexits)) == (hook, ends), "by the import"
{call}
assert sys.excepthook is not hook, "no last line"
from pyspark import SparkContext
assert SparkContext.stop.__name__ == "stop"
assert hasattr(SparkContext.stop, "__wrapped__"), "queries are not stopped first"
"""


@pytest.mark.parametrize("call", list(_CALLS))
def test_the_import_installs_no_hook_and_the_first_call_does(call: str) -> None:
    script = _EFFECTS.format(call=_CALLS[call])
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
