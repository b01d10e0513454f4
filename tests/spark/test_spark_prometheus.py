"""A real Prometheus scrapes a running query by what the page says, and an alert fires in an outage."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from abs_services import PostgresService
from abs_services.processes import free_port
from tests.outage import killed
from tests.spark.drivers import Driver, until
from tests.spark.world import World, rows_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.services,
    pytest.mark.campaign,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="Debian's package prometheus is not installed"
    ),
]

DOCS = Path(__file__).parents[2] / "docs"
ALERTS = DOCS / "examples" / "prometheus" / "alerts.yml"
LISTENS = "spark.streams.addListener(abs_spark.listener())\n"
PAGE = (DOCS / "how-to" / "watching.md").read_text()


def snippet(language: str, having: str) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    [one] = [each for each in found if having in each]
    return str(one)


class Prometheus:
    """A server's answers."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1/"

    def value(self, query: str) -> float | None:
        """Of a query with one result; None if there is none, or no answer."""
        try:
            with urllib.request.urlopen(f"{self._url}query?query={quote(query)}") as answer:
                found = json.load(answer)["data"]["result"]
        except OSError:
            return None
        return float(found[0]["value"][1]) if found else None


@contextmanager
def prometheus(folder: Path, driver: int) -> Iterator[Prometheus]:
    """One that scrapes this port by the page's settings, with the alerts' minutes as seconds."""
    folder.mkdir()
    rules = re.sub(r"(\d+)m\b", r"\1s", ALERTS.read_text())
    (folder / "alerts.yml").write_text(rules)
    every = "global: { scrape_interval: 1s, evaluation_interval: 1s }\nrule_files: [alerts.yml]\n"
    scrape = snippet("yaml", "honor_labels").replace("driver:9464", f"127.0.0.1:{driver}")
    (folder / "prometheus.yml").write_text(every + scrape)
    port = free_port()
    command = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    command.append(f"--web.listen-address=127.0.0.1:{port}")
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        yield Prometheus(port)
    finally:
        server.terminate()
        server.wait(30)


def test_an_outage_of_the_target_fires_an_alert_whose_page_leads_to_the_server(
    new_world: Callable[[str], World],
    postgres: PostgresService,
    tmp_path: Path,
) -> None:
    world, port = new_world("2pc"), free_port()
    firing = 'ALERTS{alertname="%s",alertstate="firing",job="job"}'
    world.add_files(range(1))
    before = snippet("python", "9464").replace("9464", str(port)) + "import abs_spark\n" + LISTENS
    assert f"    {LISTENS}" in PAGE
    job = replace(world.job, continuous=True, before=before)
    with (
        prometheus(tmp_path / "prometheus", port) as seen,
        Driver(job, tmp_path / "driver", world.url) as driver,
    ):
        driver.wait_until(
            lambda: seen.value('abs_rows_total{job="job",protocol="2pc"}') == 40, "it is scraped"
        )
        world.add_files(range(1, 2))
        driver.wait_until(
            lambda: seen.value('abs_frontier{job="job"}') == 1, "the second epoch is scraped"
        )
        driver.wait_until(
            lambda: seen.value("count_over_time(abs_epochs_total[100s:1s])") == 100,
            "Spark has ended the commit process that has nothing to do",
        )
        assert seen.value(firing % "AbsJobGone") is None, "a job that waits for input lives"
        world.add_files(range(2, 3))
        driver.wait_until(
            lambda: seen.value('abs_batches_total{job="job"}') == 3, "the driver goes on counting"
        )
        driver.wait_until(
            lambda: seen.value(firing % "AbsNoEpochCommitted") is None, "it is quiet no more"
        )
        with killed(postgres):
            world.add_files(range(3, 4))
            driver.wait_until(
                lambda: seen.value(firing % "AbsNoEpochCommitted") == 1, "the alert fires"
            )
            assert "`abs_core.waiting`" in PAGE.partition("`AbsNoEpochCommitted`")[2].split("\n")[0]
            driver.wait_until(
                lambda: "abs_core.waiting: " in driver.log and "PostgreSQL at " in driver.log,
                "the log names the server",
            )
        driver.wait_until(
            lambda: seen.value(firing % "AbsNoEpochCommitted") is None, "the alert ends"
        )
        driver.wait_until(
            lambda: seen.value('abs_frontier{job="job"}') == 3, "the fourth epoch is scraped"
        )
        driver.kill()
        until(lambda: seen.value(firing % "AbsJobGone") == 1, "the next alert fires", every=0.2)
    world.holds(row for number in range(4) for row in rows_of(number))
