"""AWS Glue as moto plays it, in a process of its own: a stand-in, which does not compare and set."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from abs_services.processes import free_ports
from abs_testing.case import within
from tests.kit.http import answers
from tests.packaging.venvs import python_with

MOTO = "moto[glue,server]==5.2.5"


@contextmanager
def glue(folder: Path) -> Iterator[dict[str, str]]:
    """The properties of a catalog whose tables are in the folder."""
    [port] = free_ports(1)
    server = python_with(MOTO).with_name("moto_server")
    url = f"http://127.0.0.1:{port}"
    folder.mkdir(parents=True, exist_ok=True)
    command = [str(server), "-H", "127.0.0.1", "-p", str(port)]
    with (
        (folder / "moto.log").open("wb") as log,
        subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as process,
    ):
        try:
            assert within(60, lambda: answers(f"{url}/moto-api/")), "moto did not start"
            yield {
                "type": "glue",
                "glue.endpoint": url,
                "glue.region": "us-east-1",
                "glue.access-key-id": "none",
                "glue.secret-access-key": "none",
                "warehouse": f"file://{folder}/warehouse",
            }
        finally:
            process.kill()
