"""A port that was drawn for a server is nobody else's, though the server binds it later."""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from abs_core.errors import UnavailableError
from abs_services import processes
from abs_services.processes import free_port, free_ports
from tests.planted import planted

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[int]:
    """The port that all draw here, by a list of the test's own.

    By the list of the machine it is this process's, so no other program of ours takes it meanwhile.
    """
    [port] = free_ports(1)
    monkeypatch.setattr(processes, "_PORTS", [port])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    processes._ports_file.cache_clear()  # the file stays open, and locked
    processes._mine.discard(port)
    yield port
    processes._ports_file.cache_clear()


def drawn_elsewhere(port: int) -> bool:
    """Whether another process, which ends then, gets it."""
    script = (
        "import sys; from abs_services import processes\n"
        f"processes._PORTS = [{port}]\n"
        "try: processes.free_port()\n"
        "except processes.UnavailableError: sys.exit(7)"
    )
    code = subprocess.run([sys.executable, "-c", script], check=False).returncode
    assert code in (0, 7)
    return code == 0


def test_a_port_is_drawn_by_one_process_only(only: int) -> None:
    assert free_port() == only
    assert not drawn_elsewhere(only)


def test_a_port_that_is_not_reserved_is_found(only: int) -> None:
    """Planted: it is looked at, and not taken."""
    with planted((processes, "_reserved", lambda port: True)):
        test_a_port_is_drawn_by_one_process_only(only)


def test_a_process_draws_a_port_once() -> None:
    free_port()
    with pytest.raises(UnavailableError, match="no free TCP port"):
        free_port()


def test_the_port_of_a_process_that_has_ended_is_drawn_again(only: int) -> None:
    assert drawn_elsewhere(only)
    assert free_port() == only


def let_go(code: str) -> list[str]:
    """The names of ports that are used after their socket is closed: anybody may have them by then."""
    tree = ast.parse(code)
    names = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for block in ast.walk(function):
            if isinstance(block, ast.With) and "bind(" in ast.unparse(block):
                ports = {
                    target.id
                    for node in ast.walk(block)
                    if isinstance(node, ast.Assign) and "getsockname()" in ast.unparse(node.value)
                    for target in node.targets
                    if isinstance(target, ast.Name)
                }
                names += [
                    node.id
                    for node in ast.walk(function)
                    if isinstance(node, ast.Name)
                    and node.id in ports
                    and node.lineno > (block.end_lineno or 0)
                ]
    return names


BOUND = """
def server():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
"""


@pytest.mark.parametrize(
    ("more", "count"), [("    start(port)\n", 1), ("        start(port)\n", 0), ("", 0)]
)
def test_a_port_that_is_let_go_before_it_is_used_is_found(more: str, count: int) -> None:
    assert len(let_go(BOUND + more)) == count


def test_no_test_and_no_tool_lets_a_port_go_before_it_uses_it() -> None:
    files = [path for folder in ("tests", "tools", "kit") for path in (ROOT / folder).rglob("*.py")]
    codes = {str(path): code for path in files if "getsockname()" in (code := path.read_text())}
    used = {path: names for path, code in codes.items() if (names := let_go(code))}
    assert used == {}, "draw it by abs_services.processes.free_port"
