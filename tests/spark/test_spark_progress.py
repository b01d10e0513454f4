"""Progress as metrics and log lines, from the protocol's own events."""

from __future__ import annotations

import json
import logging
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from abs_core import events
from abs_services.processes import free_port
from abs_spark.progress import observer

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "watching.md"
ALERTS = ROOT / "docs" / "examples" / "prometheus" / "alerts.yml"
JOB = "observed"
EVENTS = (
    events.Started(JOB, 3, minted=False),
    events.PreCommitted(JOB, 7, 0, 100, 0.5),
    events.PreCommitted(JOB, 7, 1, 20, 0.25),
    events.Committed(JOB, 7, 120, 2, 0.125),
    events.Skipped(JOB, 6, 80),
    events.RolledForward(JOB, 5, 2),
    events.Swept(JOB, ("a", "b", "c")),
    events.SweepFailed(JOB, "the server is gone"),
    events.Abandoned(JOB, 8),
    events.NotCertified(JOB, "the folder is not to be written"),
    events.NotCompared(JOB, "its log was cleaned"),
)


@pytest.fixture(scope="module")
def reader() -> Iterator[InMemoryMetricReader]:
    """Collects what the process measures. A provider can be set once in a process."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    metrics.set_meter_provider(provider)
    yield reader
    provider.shutdown()


def test_metrics_tell_rows_epochs_skips_sweeps_and_times(reader: InMemoryMetricReader) -> None:
    for event in EVENTS:
        observer("2pc")(event)
    data = reader.get_metrics_data()
    assert data is not None
    points = {
        metric.name: point
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        if scope.scope.name == "abs_spark"
        for metric in scope.metrics
        for point in metric.data.data_points
    }
    assert {dict(p.attributes or {}).get("protocol") for p in points.values()} == {"2pc"}
    assert {dict(p.attributes or {}).get("job") for p in points.values()} == {JOB}
    counted = {name: getattr(p, "value", None) for name, p in points.items()}
    assert counted["abs.rows"] == 120
    assert counted["abs.epochs"] == 1
    assert counted["abs.skips"] == 1
    assert counted["abs.sweeps"] == 3
    timed = {name: getattr(p, "sum", None) for name, p in points.items()}
    assert timed["abs.pre_commit.duration"] == pytest.approx(0.75)
    assert timed["abs.commit.duration"] == pytest.approx(0.125)


def test_every_metric_of_the_alert_rules_is_at_the_address_that_the_page_makes() -> None:
    """In a process of its own, by the page's snippet: a provider can be set once in a process."""
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    [snippet] = [one for one in snippets if "9464" in one]
    port = str(free_port())
    made = subprocess.run(
        [sys.executable, "-c", snippet.replace("9464", port) + _SCRAPED.replace("9464", port)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    asked = set(re.findall(r"\babs_[a-z_]+_(?:total|bucket|seconds)\b", ALERTS.read_text()))
    assert asked
    assert sorted(name for name in asked if f"\n{name}{{" not in made.stdout) == []
    assert 'le="0.05"' in made.stdout, "the SDK's own bounds begin at 5 s"


_SCRAPED = """
import urllib.request
from types import SimpleNamespace
from abs_core.events import Committed, Swept
from abs_spark.progress import observer
from abs_spark.query_listener import Listener
listener = Listener()
plan = SimpleNamespace(writeOptions=lambda: SimpleNamespace(iterator=lambda: no_option))
no_option = SimpleNamespace(hasNext=lambda: False)
listener._formats["r"] = SimpleNamespace(logicalPlan=lambda: plan)
batch = SimpleNamespace(id="q", runId="r", batchId=8, numInputRows=10, durationMs={})
listener.onQueryProgress(SimpleNamespace(progress=batch))
observer("2pc")(Swept("j", ("a",)))
observer("2pc")(Committed("j", 8, 10, 1, 0.1, 2))
print(urllib.request.urlopen("http://127.0.0.1:9464/metrics").read().decode())
"""


def promtool(folder: Path) -> str:
    """What it says against the rules of a folder and their test; empty if nothing."""
    for words in (("check", "rules", ALERTS.name), ("test", "rules", "alerts_test.yml")):
        made = subprocess.run(
            ["promtool", *words], cwd=folder, capture_output=True, text=True, check=False
        )
        if made.returncode:
            return made.stdout + made.stderr
    return ""


has_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="Debian's package prometheus has it"
)


@has_promtool
def test_the_alert_rules_are_valid_and_fire() -> None:
    assert promtool(ALERTS.parent) == ""


@has_promtool
@pytest.mark.parametrize(
    ("part", "by", "alert"),
    [
        (r" or sum by \(job\) \(abs_dead_letters_total unless .*", "", "AbsDeadLetters"),
        (r" and count by \(job\) \(abs_batches_total offset 15m\)", "", "AbsNoEpochCommitted"),
        (r"max by \(job\) \(resets\(.*?\)\) >= 3 or ", "", "AbsRecoversAgainAndAgain"),
        (r"(?<=present_over_time\(abs_batches_total\[)1d", "15m", "AbsJobGone"),
        (r"(?<=\()abs_batches_total(?=\)$|\[1d)", "abs_epochs_total", "AbsJobGone"),
    ],
)
def test_a_rule_that_misses_a_first_value_a_restart_or_an_absence_is_found(
    tmp_path: Path, part: str, by: str, alert: str
) -> None:
    """The last one fires for a format that waits for input: its commit process has ended."""
    rules, planted = re.subn(part, by, ALERTS.read_text(), flags=re.MULTILINE)
    assert planted
    (tmp_path / ALERTS.name).write_text(rules)
    shutil.copy(ALERTS.parent / "alerts_test.yml", tmp_path)
    wanted, _, got = promtool(tmp_path).partition("got:")
    jobs = rf'"{alert}", job="(.*?)"'
    assert re.findall(jobs, wanted) != re.findall(jobs, got)


def test_every_event_is_one_log_line_that_names_the_job(caplog: pytest.LogCaptureFixture) -> None:
    # Both: a test before may have shown logs in this process, which quiets progress.
    caplog.set_level(logging.INFO, logger="abs_spark")
    caplog.set_level(logging.INFO, logger="abs_spark.progress")
    for event in EVENTS:
        caplog.clear()
        observer("2pc")(event)
        assert [f"job {JOB}: " in record.message for record in caplog.records] == [True]


def test_without_an_sdk_an_observation_costs_microseconds() -> None:
    """In a process of its own: nothing has set a provider there, as in Spark's workers."""
    found = subprocess.run(
        [sys.executable, "-c", _COST], capture_output=True, text=True, check=True
    ).stdout.split()
    assert found[0] == "False"  # the SDK is not even imported
    assert float(found[1]) < 100e-6


_COST = """
import sys, time
from abs_core.events import Committed
from abs_spark.progress import observer
observe = observer("2pc")
best = 1.0
for _ in range(20):
    began = time.perf_counter()
    for epoch in range(100):
        observe(Committed("job", epoch, 1000, 2, 0.1))
    best = min(best, (time.perf_counter() - began) / 100)
print("opentelemetry.sdk" in sys.modules, best)
"""


def test_recovery_and_a_line_for_each_epoch_are_shown_where_nobody_has_set_up_logging() -> None:
    shown = {setting: _shown(setting) for setting in ("", "progress", "quiet")}
    told = [json.loads(line) for line in _shown("json").splitlines()]
    assert [one.get("event") for one in told] == ["Skipped", "Committed"]
    assert {name: told[1][name] for name in ("job", "epoch", "rows", "logger")} == {
        "job": "j",
        "epoch": 2,
        "rows": 5,
        "logger": "abs_spark.epoch",
    }
    line = "INFO abs_spark.epoch: job j: epoch 2: 5 rows committed in 0.100 s (1 handles)"
    for setting, text in shown.items():
        assert text.count("INFO abs_spark.recovery: job j: epoch 1: committed before") == 1
        assert text.count(line) == (setting != "quiet")
        assert ("5 rows pre-committed" in text) == (setting == "progress")


def _shown(setting: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", _LOG],
        env={"ABS_LOG": setting},
        capture_output=True,
        text=True,
        check=True,
    ).stderr


_LOG = """
from abs_core.events import Committed, PreCommitted, Skipped
from abs_spark.process.logs import show_logs
from abs_spark.progress import observer
show_logs(); show_logs()
observer("2pc")(Skipped("j", 1, 5))
observer("2pc")(PreCommitted("j", 2, 0, 5, 0.1))
observer("2pc")(Committed("j", 2, 5, 1, 0.1))
"""


def test_a_process_with_logging_of_its_own_is_left_alone() -> None:
    found = subprocess.run([sys.executable, "-c", _OWN], capture_output=True, text=True, check=True)
    assert found.stderr == ""
    assert found.stdout.splitlines() == ["mine job j: epoch 1: abandoned; the next run writes it"]


_OWN = """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="mine %(message)s", level=logging.INFO)
from abs_core.events import Abandoned
from abs_spark.process.logs import show_logs
from abs_spark.progress import observer
show_logs()
observer("2pc")(Abandoned("j", 1))
"""
