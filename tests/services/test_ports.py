"""A port that was drawn for a server is nobody else's, though the server binds it later."""

from __future__ import annotations

import subprocess
import sys

import pytest

from abs_core.errors import UnavailableError
from abs_services import processes
from abs_services.processes import free_port, free_ports
from tests.planted import planted


def drawn_elsewhere(port: int) -> bool:
    """Whether another process, which can draw this port only, gets it."""
    script = (
        "import sys; from abs_services import processes\n"
        f"processes._PORTS = [{port}]\n"
        "try: processes.free_port()\n"
        "except processes.UnavailableError: sys.exit(7)"
    )
    code = subprocess.run([sys.executable, "-c", script], check=False).returncode
    assert code in (0, 7)
    return code == 0


def test_a_port_is_drawn_by_one_process_only() -> None:
    port = free_port()
    assert not drawn_elsewhere(port)


def test_a_port_that_is_not_reserved_is_found() -> None:
    """Planted: it is looked at, and not taken."""
    with planted((processes, "_reserved", lambda port: True)):
        test_a_port_is_drawn_by_one_process_only()


def test_a_process_draws_a_port_once(monkeypatch: pytest.MonkeyPatch) -> None:
    [port] = free_ports(1)
    monkeypatch.setattr(processes, "_PORTS", [port])
    with pytest.raises(UnavailableError, match="no free TCP port"):
        free_port()


def test_the_port_of_a_process_that_has_ended_is_drawn_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = "from abs_services.processes import free_port; print(free_port())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    monkeypatch.setattr(processes, "_PORTS", [int(done.stdout)])
    assert free_port() == int(done.stdout)
