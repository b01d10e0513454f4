"""The native provider of servers."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from abs_services.contracts import (
    KafkaService,
    Kind,
    Outage,
    PostgresService,
    Provider,
    RegistryService,
    Running,
    S3Service,
    Services,
)
from abs_services.native.kafka import NativeKafka
from abs_services.native.lifecycle import NativeService
from abs_services.native.postgres import NativePostgres
from abs_services.native.registry import NativeRegistry
from abs_services.native.s3 import NativeS3
from abs_services.paths import Account, cache_folder, delete, shared_folder
from abs_services.processes import end_tree, frozen

_CLASSES: Mapping[Kind, type[NativeService[Any]]] = {
    "postgres": NativePostgres,
    "kafka": NativeKafka,
    "s3": NativeS3,
    "registry": NativeRegistry,
}


class NativeServices(Services):
    """Services as native processes; temporary and registered with the reaper unless ``lasting``."""

    provider = Provider.NATIVE

    def __init__(self, *, lasting: bool = False) -> None:
        self._lasting = lasting

    def postgres(self) -> PostgresService:
        return NativePostgres(self._folder("postgres"))

    def kafka(self) -> KafkaService:
        return NativeKafka(self._folder("kafka"))

    def s3(self) -> S3Service:
        return NativeS3(self._folder("s3"))

    def registry(self) -> RegistryService:
        return NativeRegistry(self._folder("registry"))

    def is_up(self, running: Running) -> bool:
        return running.process is not None and running.process.is_alive

    def end(self, running: Running) -> None:
        service = _CLASSES[running.kind]
        _end(running, service.stop_signals, deadline_s=service.stop_deadline_s)

    @contextlib.contextmanager
    def outage(self, running: Running, how: Outage) -> Iterator[None]:
        assert running.process is not None
        match how:
            case Outage.FREEZE:
                with frozen(running.process):
                    yield
                return
            case Outage.STOP:
                self.end(running)
            case Outage.CUT:
                _end(running)
        yield

    def delete_data(self, kind: Kind) -> None:
        folder = lasting_folder(kind)
        delete(folder)
        with contextlib.suppress(OSError):  # the last one in it
            folder.parent.rmdir()

    def _folder(self, kind: Kind) -> Path | None:
        return lasting_folder(kind) if self._lasting else None


def _end(running: Running, signals: Sequence[int] = (), *, deadline_s: float = 30.0) -> None:
    if running.process is not None:
        end_tree(running.process, signals, deadline_s=deadline_s)
        # One that this very process has detached is its child. PostgreSQL takes a zombie for alive.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(running.process.pid, os.WNOHANG)


def lasting_folder(kind: Kind) -> Path:
    """The data folder of a lasting service: below the cache folder.

    For PostgreSQL run by root whose cache is closed to others: below root's shared folder, as the
    server runs as another user.
    """
    account = Account.for_servers()
    cache = cache_folder()
    if kind == "postgres" and account is not None and not account.can_reach(cache):
        # Apart for each cache folder, as the state file that names it is.
        apart = hashlib.sha256(str(cache.resolve()).encode()).hexdigest()[:12]
        return shared_folder() / apart / kind
    return cache / kind
