"""Iceberg's own REST catalog, as its project runs it in its tests; its jars come by Ivy, once (34 MB).

``RESTCatalogServer`` keeps its tables by ``JdbcCatalog`` in SQLite, which compares and sets.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark
from platformdirs import user_cache_path

from abs_core.errors import ConfigError
from abs_services.java import find_java
from abs_services.native.ivy import ivy_jar
from abs_services.processes import free_ports
from abs_testing.case import within
from tests.kit.http import answers

VERSION = "1.11.0"
JETTY = "12.1.5"
_IVY = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="abs-sinks" module="rest-catalog"/>
  <dependencies>
    <dependency org="org.apache.iceberg" name="iceberg-core" rev="{VERSION}"
                conf="default-&gt;master,runtime">
      <artifact name="iceberg-core" type="jar"/>
      <artifact name="iceberg-core" type="jar" m:classifier="tests"/>
    </dependency>
    <dependency org="org.apache.iceberg" name="iceberg-open-api" rev="{VERSION}" transitive="false">
      <artifact name="iceberg-open-api" type="jar" m:classifier="test-fixtures"/>
    </dependency>
    <dependency org="org.eclipse.jetty.ee10" name="jetty-ee10-servlet" rev="{JETTY}"
                conf="default-&gt;master,runtime"/>
    <dependency org="org.eclipse.jetty.compression" name="jetty-compression-server" rev="{JETTY}"
                conf="default-&gt;master,runtime"/>
    <dependency org="org.eclipse.jetty.compression" name="jetty-compression-gzip" rev="{JETTY}"
                conf="default-&gt;master,runtime"/>
    <dependency org="org.xerial" name="sqlite-jdbc" rev="3.51.0.0" conf="default-&gt;master,runtime"/>
  </dependencies>
</ivy-module>
"""
_OF_SPARK = ("hadoop-client-*", "log4j-*")
"""Jars that PySpark has: what Hadoop's file systems need, and a log."""


_BUNDLE = f"""<ivy-module version="2.0">
  <info organisation="abs-sinks" module="rest-catalog-on-s3"/>
  <dependencies>
    <dependency org="org.apache.iceberg" name="iceberg-aws" rev="{VERSION}" transitive="false"/>
    <dependency org="org.apache.iceberg" name="iceberg-aws-bundle" rev="{VERSION}" transitive="false"/>
    <dependency org="dev.failsafe" name="failsafe" rev="3.3.2" transitive="false"/>
  </dependencies>
</ivy-module>
"""
"""For tables in S3 (60 MB)."""


def installed(name: str = "iceberg-rest", wanted: str = _IVY) -> Path:
    """The folder of the jars.

    Raises:
        ConfigError: Ivy could not fetch them.
    """
    folder = user_cache_path("abs-sinks") / f"{name}-{VERSION}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        description = Path(scratch) / "ivy.xml"
        description.write_text(wanted)
        command = [str(find_java()), "-jar", str(ivy_jar()), "-ivy", str(description)]
        command += ["-cache", f"{scratch}/cache"]
        command += ["-retrieve", f"{scratch}/jars/[artifact]-[revision](-[classifier]).[ext]"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise ConfigError(
                f"Ivy could not fetch the REST catalog {VERSION}: {ended.stdout[-500:]}",
                remedy="check that Java reaches a Maven repository.",
            )
        (Path(scratch) / "jars").rename(folder)
    return folder


_S3 = "org.apache.iceberg.aws.s3.S3FileIO"


def _variable(name: str) -> str:
    """As the server reads a property from its environment."""
    return name.replace("-", "__").replace(".", "_").upper()


@contextmanager
def rest_catalog(
    folder: Path, store: Mapping[str, str] | None = None, port: int = 0
) -> Iterator[str]:
    """A server whose tables are in the folder; its URL. It is killed at the end.

    Its host cannot be set: it listens at every address of this machine, for as long as a test runs.

    Args:
        store: properties of its catalog for tables in S3, ``warehouse`` among them; it vends the keys
            that are among them with each table.
    """
    port = port or free_ports(1)[0]
    folder.mkdir(parents=True, exist_ok=True)
    given = {
        "CATALOG_REST_PORT": str(port),
        "CATALOG_WAREHOUSE": f"file://{folder}/warehouse",
        "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",
    }
    bundle = []
    if store is not None:
        named = {"io-impl": _S3, "include-credentials": "true", **store}
        given |= {f"CATALOG_{_variable(name)}": value for name, value in named.items()}
        bundle = [str(installed("iceberg-rest-on-s3", _BUNDLE) / "*")]
    spark = Path(next(iter(pyspark.__path__))) / "jars"
    jars = [
        str(installed() / "*"),
        *bundle,
        *(str(jar) for name in _OF_SPARK for jar in spark.glob(name)),
    ]
    command = [str(find_java()), "-XX:TieredStopAtLevel=1", "-cp", ":".join(jars)]
    command += ["org.apache.iceberg.rest.RESTCatalogServer"]
    told = folder / "server.log"
    environment = {**os.environ, **given}
    with (
        told.open("wb") as log,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log) as server,
    ):
        try:
            url = f"http://127.0.0.1:{port}"
            assert within(60, lambda: answers(f"{url}/v1/config")), told.read_text()
            yield url
        finally:
            server.kill()
