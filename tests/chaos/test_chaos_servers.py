"""Servers of ``abs up`` go away under a job, and come back as they were."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from abs_chaos.killing import Killed, Servers
from abs_chaos.run import ChaosSettings, kill_to_end
from abs_chaos.schedule import Blow
from abs_core.errors import ConfigError
from abs_services import Provider
from abs_services.contracts import Kind, Outage, Running
from abs_services.lasting import away, bring_up, read_state, statuses, take_down
from tests.chaos.test_chaos_command import ROOT, Place

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]


class Silent:
    def update(self, *sights: object, aiming: bool) -> None:
        """Nothing."""

    def killed(self, *told: object) -> None:
        """Nothing."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "cache"
    monkeypatch.setenv("ABS_CACHE", str(folder))
    yield folder
    list(take_down(["postgres", "kafka", "s3"], delete_data=True))


@pytest.fixture
def running(cache: Path) -> Running:
    return bring_up("postgres", Provider.NATIVE).running


def answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.parametrize("how", Outage)
def test_a_server_is_away_for_a_while_and_comes_back_with_its_data(
    running: Running, how: Outage
) -> None:
    url = running.env["ABS_POSTGRES_URL"]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table kept as select 7 as id")
    with psycopg.connect(url) as held, away("postgres", how):
        assert not answers(url)
        (status,) = statuses()
        assert status.is_up is (how is Outage.FREEZE)
        held.close()
    assert answers(url)
    with psycopg.connect(url) as connection:
        assert connection.execute("select id from kept").fetchone() == (7,)
    assert (read_state()["postgres"].process == running.process) is (how is Outage.FREEZE)


@pytest.mark.parametrize("how", Outage)
@pytest.mark.parametrize("kind", ["kafka", "s3"])
@pytest.mark.campaign
def test_the_other_servers_come_back_too(cache: Path, kind: Kind, how: Outage) -> None:
    before = bring_up(kind, Provider.NATIVE).running
    with away(kind, how):
        time.sleep(0)
    after = read_state()[kind]
    assert after.env == before.env
    assert statuses()[0].is_up


def test_a_server_comes_back_although_the_run_is_interrupted(running: Running) -> None:
    with pytest.raises(KeyboardInterrupt), away("postgres", Outage.CUT):
        raise KeyboardInterrupt
    assert answers(running.env["ABS_POSTGRES_URL"])


def test_a_server_that_is_not_of_abs_up_is_not_touched_and_no_job_is_started(
    cache: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with pytest.raises(ConfigError, match=r"No kafka of `abs up` runs(.|\n)*abs up kafka"):
        kill_to_end(ChaosSettings(["true"], log, also=["kafka"]), Silent())
    assert not log.exists()


def test_a_blow_that_fails_fails_the_run(cache: Path) -> None:
    servers = Servers()
    servers.begin(Blow("postgres", Outage.CUT, 0.0))
    with pytest.raises(ConfigError, match="No postgres"):
        servers.close()


def test_a_job_goes_on_over_servers_that_go_away(
    tmp_path: Path, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails while its server is away, and is started again until it answers."""
    monkeypatch.setattr("abs_chaos.schedule.AWAY_S", (1.0, 2.0))
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    url = running.env["ABS_POSTGRES_URL"]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table target (id bigint, name text)")
    there = Place(tmp_path, url)
    there.fill(40)
    words = [*there.target, *there.checkpoint, "--seed", "7", "--kills", "2", "--also", "postgres"]
    code, found = there.chaos(*words, *there.plain("exact"))
    assert code == 0, found
    assert len(found["kills"]) >= 2
    blows: list[Killed] = [Killed(**blow) for blow in found["blows"]]
    assert len(blows) == 2
    assert all(blow.server and blow.server.startswith("postgres ") for blow in blows)
    assert all(blow.recovered_s is None or blow.recovered_s > 0 for blow in blows)
    assert found["visible"], "rows were counted while it ran"
    assert found["epochs"][-1][1] == 39
