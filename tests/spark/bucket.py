"""A folder in a bucket that Spark writes to, and how tests look at what has become of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq

from abs_clients.s3.location import OURS
from abs_clients.s3.objects import Objects
from abs_services import S3Service
from abs_sinks.s3 import S3Options, committed_files
from abs_sinks.s3.sink import admin_committer
from abs_sinks.s3.uploads import Uploads
from tests.spark.world import Row


class Bucket:
    """A folder of the server, with the options that name it."""

    def __init__(self, s3: S3Service, prefix: str) -> None:
        self.options = {
            "path": f"s3://{s3.bucket}/{prefix}",
            "endpoint": s3.endpoint,
            "region": s3.region,
        }
        self.secret_key = s3.secret_key
        self._read = S3Options.parse(self.options)

    def names(self) -> list[str]:
        """The keys of all data files, committed or not."""
        ours = self._read.path.key(OURS, "")
        found = Objects(self._read.bucket).list(self._read.path.folder)
        return [listed.key for listed in found if not listed.key.startswith(ours)]

    def committed(self) -> list[str]:
        """The keys that a reader by manifests goes by."""
        return [file.key for file in committed_files(self._read)]

    def frame(self, keys: Iterable[str]) -> pd.DataFrame:
        """The rows of these Parquet files, as pandas reads them."""
        frames = [pq.read_table(pa.BufferReader(self._body(key))).to_pandas() for key in keys]
        return pd.concat(frames) if frames else pd.DataFrame()

    def ids(self) -> Counter[int]:
        return Counter(self.frame(self.names()).get("id", []))

    def rows(self, protocol: str) -> Counter[Row]:
        """What a reader sees: all files in the folder, or, under idempotent, what manifests name."""
        frame = self.frame(self.committed() if protocol == "idempotent" else self.names())
        if frame.empty:
            return Counter()
        moments = [moment.to_pydatetime() for moment in frame["at"]]
        return Counter(zip(frame["id"], frame["word"], moments, strict=True))

    def holds(self, protocol: str, expected: Sequence[Row]) -> None:
        """Assert: exactly these rows, each once; no other file, no upload, nothing in doubt."""
        rows, wanted = self.rows(protocol), Counter(expected)
        assert rows == wanted, f"missing {wanted - rows}, too many {rows - wanted}"
        assert sorted(self.names()) == sorted(self.committed()), "a file that nothing names"
        assert (self.uploads(), self.in_doubt()) == ([], [])

    def copied_to(self, folder: Path) -> str:
        """Every object there is, ours too, as files below ``folder``: for readers that list."""
        for listed in Objects(self._read.bucket).list(self._read.path.folder):
            path = folder / listed.key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self._body(listed.key))
        return str(folder / self._read.path.folder)

    def uploads(self) -> list[str]:
        """The keys of all uploads that are open."""
        return [found.key for found in Uploads(self._read).list(self._read.path.folder)]

    def in_doubt(self) -> list[str]:
        """What any protocol has left there."""
        return [doubt.detail for doubt in admin_committer(self._read).in_doubt(None)]

    def _body(self, key: str) -> bytes:
        body = Objects(self._read.bucket).get(key)
        assert body is not None, f"{key} is gone"
        return body.data
