"""The files of other projects, as groups that Spark is asked about."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from tests.sources.files.oracle import Group, group

CORPORA = Path(__file__).parent / "corpora" / "corpora.zip"


def corpora() -> Iterator[Group]:
    """Files of other projects, see the README beside them. A JSON text is a field of an object."""
    with zipfile.ZipFile(CORPORA) as kept:
        files: dict[str, dict[str, bytes]] = {}
        for name in sorted(kept.namelist()):
            folder, _, label = name.partition("/")
            files.setdefault(folder, {})[label] = kept.read(name)
    one_line = {
        k: b'{"v":' + v + b"}\n"
        for k, v in files["JSONTestSuite"].items()
        if b"\n" not in v.strip()
    }
    for kind in (
        pa.list_(pa.float64()),
        pa.list_(pa.string()),
        pa.struct([("a", pa.string())]),
        pa.map_(pa.string(), pa.int64()),
    ):
        yield group("json", pa.schema([("v", kind)]), one_line)
    yield group("json", pa.schema([("w", pa.int32())]), one_line)
    yield group("parquet", None, files["parquet-testing"])
    for label, content in files["csv-spectrum"].items():
        header = content.decode().splitlines()[0].replace('"', "").split(",")
        schema = pa.schema([(name, pa.string()) for name in header])
        yield group("csv", schema, {label: content}, {"header": "true"}, {"escape": '"'})
