"""A folder on a real server, for ``abs_testing.check_sink``: proves the sink where it will run.

    check_sink(partial(open_folder, "s3://bucket/somewhere", {"endpoint": ...}))

Credentials come by boto3's chain. Everything in the folders that it makes is deleted again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from abs_clients.s3.client import warm_up
from abs_clients.s3.location import OURS
from abs_clients.s3.objects import Objects
from abs_core.contracts import Sink
from abs_sinks.s3.committed import committed_files
from abs_sinks.s3.layout import handle_of, job_text
from abs_sinks.s3.manifests import FOLDER as MANIFESTS
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.register import S3Register
from abs_sinks.s3.sink import S3Sink
from abs_sinks.s3.uploads import Uploads
from abs_testing import SCHEMA, Row

warm_up()  # once, here: the lives of ``check_crashes`` are forked from a process that has it


class FolderHarness:
    """A folder of its own: what ``check_sink`` drives, and looks into."""

    own_register = True

    def __init__(self, path: str, options: Mapping[str, str]) -> None:
        self.path = f"{path.rstrip('/')}/{secrets.token_hex(6)}"
        self.use(S3Options.parse({**options, "path": self.path}))
        self._objects = Objects(self.options.bucket)
        self._uploads = Uploads(self.options)

    def use(self, options: S3Options) -> None:
        """Build sinks with these options from now on, on the same folder."""
        self.options = options
        self.new_sink: Callable[[], Sink] = partial(S3Sink, options, SCHEMA)

    def keys(self) -> list[str]:
        """Every object in the folder that a reader sees."""
        ours = self.options.path.key(OURS, "")
        listed = self._objects.list(self.options.path.folder)
        return [entry.key for entry in listed if not entry.key.startswith(ours)]

    def read(self) -> Sequence[Row]:
        if self.options.protocol == "idempotent":
            return self.committed()
        return self._rows(self.keys())

    def committed(self) -> Sequence[Row]:
        """What a reader sees that goes by manifests."""
        return self._rows([file.key for file in committed_files(self.options)])

    def _rows(self, keys: Sequence[str]) -> Sequence[Row]:
        rows: list[Row] = []
        for key in keys:
            body = self._objects.get(key)
            assert body is not None, f"{key} is gone"
            table = pq.read_table(pa.BufferReader(body.data))
            rows += zip(table["id"].to_pylist(), table["value"].to_pylist(), strict=True)
        return rows

    def uploads(self) -> list[str]:
        """The keys of all uploads that are open in the folder."""
        return [upload.key for upload in self._uploads.list(self.options.path.folder)]

    def leftovers(self, job: str) -> Sequence[str]:
        def is_of_job(key: str) -> bool:
            handle = handle_of(key)
            return handle is None or handle.job == job

        ours = self.options.path.key(OURS, "")
        seen = {file.key for file in committed_files(self.options)}
        expected = {*self._of_registers(), *seen}
        kept = [*(entry.key for entry in self._objects.list(ours)), *self.keys()]
        return [
            *(f"upload of {key}" for key in self.uploads() if is_of_job(key)),
            *(f"object {key}" for key in kept if key not in expected and is_of_job(key)),
        ]

    def _of_registers(self) -> Iterator[str]:
        """The keys of registers and of what they list."""
        register = S3Register(self.options)
        for job in register.names():
            yield register.key(job)
            cell = register.cell(job)
            for name in cell[0].manifests if cell else ():
                yield self.options.state.key(MANIFESTS, f"job={job_text(job)}", name)

    only_at_starts = True
    """See ``abs_testing.GoingBack``."""

    def backup(self) -> Callable[[], None]:
        """See ``abs_testing.GoingBack``: the objects that readers see."""
        there = {key: body.data for key in self.saved_keys() if (body := self._objects.get(key))}

        def restore() -> None:
            now = set(self.saved_keys())
            self._objects.delete(sorted(now - there.keys()))
            for key in there.keys() - now:
                self._objects.put(key, there[key])

        return restore

    def saved_keys(self) -> Sequence[str]:
        """What a backup of the bucket has."""
        return self.keys()

    def saved(self, job: str) -> Callable[[], None]:
        """See ``abs_testing.Restoring``."""
        key = S3Register(self.options).key(job)
        body = self._objects.get(key)
        if body is None:
            return partial(self._objects.delete, [key])

        def restore(content: bytes = body.data) -> None:
            self._objects.put(key, content)

        return restore

    def close(self) -> None:
        """Remove all of it from the server."""
        for upload in list(self._uploads.list(self.options.path.folder)):
            self._uploads.abort(upload.key, upload.upload_id)
        self._objects.delete([entry.key for entry in self._objects.list(self.options.path.folder)])


def open_folder(path: str, options: Mapping[str, str]) -> AbstractContextManager[FolderHarness]:
    """A harness on a new, empty folder.

    Args:
        path: a folder in which it may make others, ``s3://bucket/prefix``.
        options: of the sink, ``endpoint`` for one.
    """
    return closing(FolderHarness(path, options))
