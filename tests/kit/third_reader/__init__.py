"""Readers of other make: programs that share no library with the sinks or with the audit.

PostgreSQL's own ``pg_dump``, Kafka's own Java consumer, and curl. They tell what somebody sees who has
never heard of us.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree as ET

import pytest

from abs_services import S3Service
from abs_services.java import find_java
from abs_services.native.kafka_jars import broker_jars
from abs_services.native.postgres import find_binaries

HERE = Path(__file__).parent


def tool(name: str) -> str:
    """A program of this machine; without it the test says that it was not run."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"the third reader was not asked: there is no {name}")
    return path


def run(command: list[str], given: str = "", folder: Path | None = None) -> str:
    """What a program prints; it must succeed."""
    ended = subprocess.run(
        command, input=given, cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout


def ids_by_pg_dump(url: str, table: str) -> Counter[int]:
    """The first column of a table, as the server's own ``pg_dump`` writes it."""
    program = find_binaries(None) / "pg_dump"
    text = run([str(program), "--data-only", f"--table={table}", url])
    _, _, block = text.partition("FROM stdin;\n")
    rows, end, _ = block.partition("\\.\n")
    assert end, f"pg_dump wrote no rows of {table}: {text[:300]}"
    return Counter(int(line.split("\t")[0]) for line in rows.splitlines())


def records_by_kafka(bootstrap: str, topic: str, folder: Path) -> list[tuple[int, int, str]]:
    """Partition, offset and value of each record, by Kafka's own consumer with read_committed.

    Args:
        folder: for the compiled class.
    """
    jars = broker_jars(find_java())
    classes = f"{jars}/*:{folder}"
    if not (folder / "CommittedReader.class").exists():
        source = str(HERE / "CommittedReader.java")
        run([tool("javac"), "-cp", f"{jars}/*", "-d", str(folder), source])
    said = run([str(find_java()), "-cp", classes, "CommittedReader", bootstrap, topic])
    records = [line.split("\t", 2) for line in said.splitlines()]
    return [(int(partition), int(offset), value) for partition, offset, value in records]


def ids_by_kafka(bootstrap: str, topic: str, folder: Path) -> Counter[int]:
    """The field ``id`` of the values of ``records_by_kafka``."""
    return Counter(json.loads(v)["id"] for _, _, v in records_by_kafka(bootstrap, topic, folder))


class BucketByCurl:
    """The objects below a prefix, by curl, which signs requests itself.

    Args:
        prefix: without a slash at its end.
    """

    def __init__(self, s3: S3Service, prefix: str) -> None:
        self._s3, self._prefix = s3, prefix
        self._url = f"{s3.endpoint}/{s3.bucket}"

    def names(self) -> list[str]:
        """Keys of data files: readers that list leave out names that begin with _ or a dot."""
        listed = self._curl(f"{self._url}?list-type=2&prefix={quote(self._prefix + '/', safe='')}")
        names = [key.text or "" for key in ET.fromstring(listed).iterfind(".//{*}Key")]
        parts = {name: name.removeprefix(self._prefix).strip("/").split("/") for name in names}
        return [name for name in names if not any(p.startswith(("_", ".")) for p in parts[name])]

    def fetch(self, folder: Path) -> dict[str, Path]:
        """Copies of all of them in an empty folder."""
        folder.mkdir()
        copies = {}
        for number, name in enumerate(self.names()):
            copies[name] = folder / f"{number}.parquet"
            self._curl(self._object(name), "--output", str(copies[name]))
        return copies

    def put(self, name: str, path: Path) -> None:
        """Write an object."""
        self._curl(self._object(name), "--upload-file", str(path))

    def _object(self, name: str) -> str:
        return f"{self._url}/{quote(name)}"

    def _curl(self, url: str, *more: str) -> str:
        # The keys go by standard input: a command line can be read by others.
        keys = f'user = "{self._s3.access_key}:{self._s3.secret_key}"\n'
        signed = ["--aws-sigv4", f"aws:amz:{self._s3.region}:s3", "--fail-with-body", "--silent"]
        return run([tool("curl"), "--config", "-", *signed, *more, url], keys)
