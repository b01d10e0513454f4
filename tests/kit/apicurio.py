"""Apicurio's registry, which has Confluent's API: for the campaign. It comes by Ivy, once (142 MB)."""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from platformdirs import user_cache_path

from abs_core.errors import ConfigError
from abs_services.java import find_java
from abs_services.native.ivy import ivy_jar
from abs_services.processes import free_ports
from abs_testing.case import within
from tests.kit.http import answers

VERSION = "2.6.13.Final"
_IVY = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="abs-sinks" module="registry"/>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{VERSION}" transitive="false">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


def installed() -> Path:
    """The folder of the unpacked archive.

    Raises:
        ConfigError: Ivy could not fetch it.
    """
    folder = user_cache_path("abs-sinks") / f"apicurio-{VERSION}"
    if (folder / "unpacked").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        description = Path(scratch) / "ivy.xml"
        description.write_text(_IVY)
        command = [str(find_java()), "-jar", str(ivy_jar()), "-ivy", str(description)]
        command += ["-cache", f"{scratch}/cache"]
        command += ["-retrieve", f"{scratch}/[artifact]-[revision](-[classifier]).[ext]"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        archives = list(Path(scratch).glob("*.tar.gz"))
        if ended.returncode or not archives:
            raise ConfigError(
                f"Ivy could not fetch Apicurio {VERSION}: {ended.stdout[-500:]}",
                remedy="check that Java reaches a Maven repository.",
            )
        with tarfile.open(archives[0]) as packed:
            packed.extractall(folder, filter="data")
    (folder / "unpacked").touch()
    return folder


@contextmanager
def apicurio() -> Iterator[str]:
    """A registry in memory that checks that schemas can be read with older ones; its URL."""
    folder = installed()
    [port] = free_ports(1)
    command = [str(find_java()), f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"]
    command += ["-jar", str(next(folder.glob("*-runner.jar")))]
    log = (folder / "log.txt").open("wb")
    with log, subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            assert within(120, lambda: answers(f"{url}/health/ready")), (
                folder / "log.txt"
            ).read_text()
            api = f"{url}/apis/ccompat/v7"
            _put(f"{api}/config", b'{"compatibility": "BACKWARD"}')
            yield api
        finally:
            server.terminate()
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()


def _put(url: str, body: bytes) -> None:
    kind = {"content-type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(url, body, kind, method="PUT")
    with urllib.request.urlopen(request, timeout=10):
        pass
