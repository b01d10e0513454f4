"""Lifecycle of a native service: one folder, one server process, from start to close."""

from __future__ import annotations

import json
import os
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from dataclasses import fields as fields_of
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from abs_core.durable import replace_durably
from abs_core.errors import ConfigError, UnavailableError
from abs_core.strictjson import fields, parse
from abs_services.contracts import Provider, Running
from abs_services.paths import delete
from abs_services.processes import ProcessId
from abs_services.readiness import StartedService
from abs_services.reaper import REAPER

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
import subprocess
from dataclasses import dataclass, field
from typing import TypedDict

from abs_services.paths import Account
from abs_services.processes import clean_environment, end_tree


@dataclass(frozen=True)
class Command:
    """How a server process is launched."""

    argv: Sequence[str]
    cwd: Path
    account: Account | None = None
    env: Mapping[str, str] = field(default_factory=dict)


class ServerProcess:
    """One server process, started here in a session of its own, so that Ctrl-C does not reach it.

    It ends when this Python process ends, however that ends, unless it is detached.

    Args:
        log: for the server's stdout and stderr; appended to over restarts.
    """

    def __init__(self, command: Command, log: Path) -> None:
        self._log = log
        with log.open("ab") as output:
            self._log_start = output.tell()
            self._popen = subprocess.Popen(
                list(command.argv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=command.cwd,
                env=clean_environment(**command.env),
                start_new_session=True,
                **as_account(command.account),
            )
        self.id = ProcessId.of_child(self._popen)
        REAPER.register(self.id)

    @property
    def is_running(self) -> bool:
        # poll() reaps: a zombie would count as alive for a server that looks at its lock file.
        return self._popen.poll() is None

    def detach(self) -> None:
        """Let the server outlive this Python process; this object is of no use after that."""
        REAPER.unregister(self.id)
        # Not waited for any more: else Python warns of a child that still runs.
        self._popen.returncode = 0

    def end(self, signals: Sequence[int] = (), *, deadline_s: float = 30.0) -> None:
        """End the process and its descendants by these signals, at last by SIGKILL."""
        if self.is_running:
            end_tree(self.id, signals, deadline_s=deadline_s)
        self._popen.wait()
        REAPER.unregister(self.id)

    def said(self) -> str:
        """The log since the launch."""
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")


class RunAs(TypedDict, total=False):
    """The arguments by which ``subprocess`` runs a program as another user."""

    user: int
    group: int
    extra_groups: list[int]


def as_account(account: Account | None) -> RunAs:
    """The arguments for an account; none for the caller's own."""
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


IdentityT = TypeVar("IdentityT", bound="DataclassInstance")


class NativeService(StartedService, Generic[IdentityT]):
    """A service as one native process, with all its data in one folder.

    Args:
        folder: for data and log; made if absent, stays after ``close()``. None: a temporary folder
            (in ``$ABS_SERVICES_IN``, if set), deleted by ``close()`` or with this Python process.
    """

    stop_signals: ClassVar[Sequence[int]]
    # How long each of them may take, in seconds, before the next, and SIGKILL at last.
    stop_deadline_s: ClassVar[float] = 30.0
    ready_s = 60.0

    def __init__(self, folder: Path | None = None) -> None:
        self._temporary = folder is None
        self._given = folder
        self._folder: Path | None = None
        self._server: ServerProcess | None = None
        self._identity: IdentityT | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'up' if self.is_running else 'down'}, pid={self.pid})"

    @abstractmethod
    def _set_up(self) -> Command:
        """Prepare the folder and return the command. Called before each launch."""

    def _keep(self, kind: type[IdentityT], new: Callable[[], IdentityT] | None) -> IdentityT:
        """The server's identity: what stays the same over restarts, in its folder.

        Args:
            new: makes it for a folder that has none; None: the folder's data was made with one.
        """
        path = self.folder / "identity.json"
        if new is not None and not path.exists():
            write_private(path, asdict(new()))
        # An older release's may have more.
        names = {field.name for field in fields_of(kind)}
        values = {name: value for name, value in read_private(path).items() if name in names}
        self._identity = kind(**values)
        return self._identity

    @property
    def identity(self) -> IdentityT:
        """What stays the same over restarts. ConfigError before the first start."""
        if self._identity is None:
            raise ConfigError(f"this {self.kind} was never started", remedy="call start() first.")
        return self._identity

    def _paths_outside(self) -> Sequence[Path]:
        """Files that the server leaves outside its folder."""
        return ()

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise ConfigError(f"this {self.kind} was never started", remedy="call start() first.")
        return self._folder

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def process_id(self) -> ProcessId | None:
        """The main process; None while the server is down."""
        return self._server.id if self._server is not None and self.is_running else None

    @property
    def pid(self) -> int | None:
        return self.process_id.pid if self.process_id else None

    @property
    def is_running(self) -> bool:
        return self._server is not None and self._server.is_running

    @property
    def running(self) -> Running:
        return Running(self.kind, Provider.NATIVE, self.env, self.process_id, folder=self.folder)

    def _launch(self) -> None:
        self._open_folder()
        command = self._set_up()
        if self._temporary:
            for path in self._paths_outside():
                REAPER.register(path)
        self._server = ServerProcess(command, self.log)

    def _await_ready(self) -> None:
        try:
            super()._await_ready()
        except UnavailableError:
            self.kill()
            raise

    def stop(self) -> None:
        """End the server in an orderly way; its data stays."""
        if self._server is not None:
            self._server.end(self.stop_signals, deadline_s=self.stop_deadline_s)

    def kill(self) -> None:
        """SIGKILL the server and all of its children; returns when all are gone."""
        if self._server is not None:
            self._server.end()

    def detach(self) -> None:
        if self._temporary or self._server is None:
            raise ConfigError(
                "a temporary server cannot outlive its process", remedy="name a folder."
            )
        if not self.is_running:
            raise ConfigError(f"{self.kind} does not run", remedy="start it first.")
        self._server.detach()
        self._server = None

    def said(self) -> str:
        """The server's log since its launch."""
        return "" if self._server is None else self._server.said()

    def close(self) -> None:
        # What is deleted right after need not be shut down in order, checkpoint and all.
        if self._temporary:
            self.kill()
        else:
            self.stop()
        if self._temporary and self._folder is not None:
            for path in self._paths_outside():
                delete(path)
            delete(self._folder)
            self._folder = None

    def _open_folder(self) -> None:
        if self._folder is None:
            # Short: a unix socket's path has at most 107 bytes.
            at = os.environ.get("ABS_SERVICES_IN")
            folder = self._given or Path(tempfile.mkdtemp(prefix=f"abs-{self.kind}-", dir=at))
            self._folder = folder.resolve()
            if self._temporary:
                REAPER.register(self._folder)
        self._folder.parent.mkdir(parents=True, exist_ok=True, mode=0o711)
        self._folder.mkdir(exist_ok=True, mode=0o700)
        self.log.touch(mode=0o600)


def read_private(path: Path) -> dict[str, Any]:
    """A JSON object that :func:`write_private` wrote; ConfigError if it is missing."""
    try:
        return fields(parse(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path.parent} holds a server's data, but not the file {path.name} made with it",
            remedy="choose another folder, or delete this one where its data is not needed.",
        ) from error


def write_private(path: Path, value: Mapping[str, Any]) -> None:
    """A JSON file that only its owner can read: it may hold credentials."""
    replace_durably(path, json.dumps(dict(value)).encode())
