"""A folder of JSON files beside that of its dead letters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

import pyarrow as pa

from abs_core.contracts import Sink, Task, Writer
from abs_sinks.deadletters.letter import schema_of
from abs_sinks.deadletters.row import rows_of
from abs_sinks.s3.committed import committed_files
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.sink import S3Letters, S3Sink
from abs_sinks.s3.testing import FolderHarness
from abs_testing import Row
from tests.kit.reshaping import ReshapingWriter
from tests.sinks.dead_letters import is_poison

NOTED = pa.schema([("id", pa.int64()), ("value", pa.string()), ("note", pa.string())])


class NotedSink(S3Sink):
    """Takes the checks' batches; poison gets a note with a NUL, which JSON files cannot hold."""

    def writer(self, task: Task) -> Writer:
        return ReshapingWriter(super().writer(task), _noted)


def _noted(batch: pa.RecordBatch) -> pa.RecordBatch:
    ids, values = batch.columns
    notes = ["a\0b" if is_poison(id_) else None for id_ in ids.to_pylist()]
    return pa.record_batch([ids, values, pa.array(notes, pa.string())], schema=NOTED)


class Buried(FolderHarness):
    """Rows that ``is_poison`` tells are dead letters.

    Args:
        inside: whether their folder is within that of the rows.
        together: whether a reader sees both: then each check is one of the equation.
        changed: options besides.
    """

    code = "nul-character"

    def __init__(
        self,
        path: str,
        given: Mapping[str, str],
        *,
        inside: bool,
        together: bool,
        **changed: object,
    ) -> None:
        super().__init__(path, {**given, "fileformat": "json"})
        self._together = together
        self.dead = f"{self.path}/_dead" if inside else f"{self.path}-dead"
        more = {"deadletter": self.dead, "deadlettermax": "1", "path": self.path}
        options = S3Options.parse({**given, "fileformat": "json", **more})
        self.use(replace(options, **changed))  # type: ignore[arg-type]

    def use(self, options: S3Options) -> None:
        self.options = options
        self.new_sink: Callable[[], Sink] = partial(NotedSink, options, NOTED)

    def keys(self) -> list[str]:
        hidden = f"{self.options.path.folder}_dead/"
        seen: list[str] = super().keys()
        return [key for key in seen if not key.startswith(hidden)]

    def saved_keys(self) -> Sequence[str]:
        assert self.options.letters is not None
        beside = self._objects.list(self.options.letters.folder)
        return sorted({*self.keys(), *(found.key for found in beside)})

    def read(self) -> Sequence[Row]:
        letters = [row for _, row in self.letters()] if self._together else []
        return [*super().read(), *letters]

    def letters(self) -> list[tuple[str, Row]]:
        """Code and row of each dead letter."""
        kept = S3Letters(self.options)
        found = kept.shown([letter["id"] for letter in kept.found(replayed=True)])
        read = [(each["code"], rows_of([each["row"]], schema_of(each["schema"]))) for each in found]
        return [(code, (b["id"][0].as_py(), b["value"][0].as_py())) for code, b in read]

    def uploads(self) -> list[str]:
        assert self.options.letters is not None
        beside = self._uploads.list(self.options.letters.folder)
        return sorted({*super().uploads(), *(found.key for found in beside)})

    def leftovers(self, job: str) -> Sequence[str]:
        assert self.options.letters is not None
        folder = self.options.letters
        common = replace(self.options.common, protocol="2pc")
        there = replace(self.options, path=folder, statepath=self.options.state, common=common)
        seen = {file.key for file in committed_files(there)}
        keys = [found.key for found in self._objects.list(folder.folder)]
        more = [f"dead letters {key}" for key in keys if key not in seen]
        return [*super().leftovers(job), *more]

    def _rows(self, keys: Sequence[str]) -> Sequence[Row]:
        rows: list[Row] = []
        for key in keys:
            body = self._objects.get(key)
            assert body is not None, f"{key} is gone"
            read = [json.loads(line) for line in bytes(body.data).splitlines()]
            rows += [(row["id"], row["value"]) for row in read]
        return rows

    def close(self) -> None:
        super().close()
        assert self.options.letters is not None
        folder = self.options.letters.folder
        for found in list(self._uploads.list(folder)):
            self._uploads.abort(found.key, found.upload_id)
        self._objects.delete([found.key for found in self._objects.list(folder)])


def buried(
    path: str,
    given: Mapping[str, str],
    *,
    inside: bool = False,
    together: bool = False,
    **changed: object,
) -> closing[Buried]:
    return closing(Buried(path, given, inside=inside, together=together, **changed))
