"""Log lines begin on lines of their own, also beside Spark's progress bar; no Spark runs."""

from __future__ import annotations

import io
import logging
import sys
from types import SimpleNamespace

import pyspark
import pytest

from abs_spark.process import logs

BAR = "[Stage 3:====>      (2 + 2) / 4]"


def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What stands on the console after the bar and a line."""
    console = io.StringIO(BAR)
    console.seek(0, io.SEEK_END)
    monkeypatch.setattr(sys, "stderr", console)
    handler = logs._Console()
    handler.emit(logging.LogRecord("abs_spark.epoch", logging.INFO, "", 0, "job j", (), None))
    return console.getvalue().splitlines()


@pytest.mark.parametrize("shows", ["true", None])
def test_the_drivers_line_is_not_glued_to_the_bar(
    monkeypatch: pytest.MonkeyPatch, shows: str | None
) -> None:
    conf = SimpleNamespace(get={"spark.ui.showConsoleProgress": shows}.get)
    active = SimpleNamespace(getConf=lambda: conf)
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", active)
    assert shown(monkeypatch) == ([BAR, "job j"] if shows else [f"{BAR}job j"])


@pytest.mark.parametrize("launched", [True, False])
def test_a_workers_line_is_not_glued_to_the_bar_of_a_jvm_that_python_started(
    monkeypatch: pytest.MonkeyPatch, launched: bool
) -> None:
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", None)
    monkeypatch.delenv(logs._LAUNCHED, raising=False)
    if launched:
        monkeypatch.setenv(logs._LAUNCHED, "/x")
    assert shown(monkeypatch) == ([BAR, "job j"] if launched else [f"{BAR}job j"])


def test_register_names_the_setting_for_speed_once_where_the_session_has_not_made_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="abs_spark.start")
    monkeypatch.setattr(logging.getLogger("abs_spark"), "propagate", True)
    monkeypatch.setattr(logs, "_speed_told", False)
    for made in (str(2**31 - 1), None, None):
        logs.tell_of_speed(SimpleNamespace(conf=SimpleNamespace(get=lambda name, _, m=made: m)))
    said = [line for line in caplog.messages if "maxBytesPerBatch=2147483647" in line]
    assert len(said) == 1
