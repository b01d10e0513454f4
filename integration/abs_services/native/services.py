"""The native way to get servers."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from abs_services.contracts import KafkaService, Kind, PostgresService, Running, S3Service, Way
from abs_services.native.postgres import STOP_SIGNALS, NativePostgres
from abs_services.native.server import delete_folder
from abs_services.places import Account, cache_folder, shared_folder
from abs_services.processes import end_tree

_STOP_SIGNALS: Mapping[Kind, Sequence[int]] = {
    "postgres": STOP_SIGNALS,
    "kafka": [signal.SIGTERM],
    "s3": [signal.SIGTERM],
}


class NativeServices:
    """:class:`abs_services.Services`, natively; temporary and on a leash unless ``lasting``."""

    way = Way.NATIVE

    def __init__(self, *, lasting: bool = False) -> None:
        self._lasting = lasting

    def postgres(self) -> PostgresService:
        return NativePostgres(self._folder("postgres"))

    def kafka(self) -> KafkaService:
        raise NotImplementedError

    def s3(self) -> S3Service:
        raise NotImplementedError

    def is_up(self, running: Running) -> bool:
        return running.process is not None and running.process.is_alive

    def end(self, running: Running) -> None:
        if running.process is not None:
            end_tree(running.process, _STOP_SIGNALS[running.kind])

    def delete_data(self, kind: Kind) -> None:
        delete_folder(lasting_folder(kind))

    def _folder(self, kind: Kind) -> Path | None:
        return lasting_folder(kind) if self._lasting else None


def lasting_folder(kind: Kind) -> Path:
    """Where a lasting service keeps its data: below the cache folder.

    For PostgreSQL run by root whose cache is closed to others: below root's shared folder, as the
    server runs as another user.
    """
    account = Account.for_servers()
    cache = cache_folder()
    if kind == "postgres" and account is not None and not account.can_reach(cache):
        return shared_folder() / kind
    return cache / kind
