"""The stand-in for a schema registry as a process of its own."""

from __future__ import annotations

import signal
import sys
import urllib.request
from dataclasses import dataclass

from abs_services.contracts import RegistryService
from abs_services.native.lifecycle import Command, NativeService
from abs_services.processes import free_port


@dataclass(frozen=True)
class RegistryIdentity:
    """Constant over restarts."""

    port: int


class NativeRegistry(NativeService[RegistryIdentity], RegistryService):
    """:mod:`abs_services.registry` on 127.0.0.1; its schemas and their ids stay over restarts."""

    stop_signals = (signal.SIGTERM,)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.identity.port}"

    def _set_up(self) -> Command:
        identity = self._keep(RegistryIdentity, lambda: RegistryIdentity(free_port()))
        kept = str(self.folder / "schemas.json")
        argv = [sys.executable, "-m", "abs_services.registry", str(identity.port), kept]
        return Command(argv, cwd=self.folder)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except OSError:
            return False
