"""The format ``abs-folder``: a sink on a local folder, for tests of the Spark adaptor alone.

A writer puts its rows into ``staged/<handle>.arrow``; to commit is to rename it into ``data/``.
Options: ``path``, and those that every sink takes. ``fail`` makes preflight find an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

import pyarrow as pa

from abs_clients.options import Option, Problems, read_options, text
from abs_core.contracts import Committer, Inventory, RegisterStore, Sink, Task, Writer
from abs_core.crash import CrashPoint, reached
from abs_core.model import (
    Committable,
    Finding,
    Guarantee,
    HandleName,
    InDoubt,
    Inspection,
    JobState,
    Outcome,
    Severity,
)
from abs_core.patience import Patience
from abs_core.registers import FileRegister
from abs_sinks.door import SinkFormat
from abs_sinks.options import COMMON, CommonOptions
from abs_spark.datasource.source import AbsDataSource


@dataclass(frozen=True)
class FolderOptions:
    path: str
    fail: str | None
    common: CommonOptions

    @property
    def patience(self) -> Patience:
        return Patience(self.common.patience, system=f"the folder {self.path}")

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> FolderOptions:
        problems = Problems("abs-folder")
        own = (Option("path", text), Option("fail", text))
        values = read_options(given, (*COMMON, *own), problems)
        problems.raise_any()
        return cls(values["path"], values["fail"], CommonOptions.of(values))


class FolderWriter:
    def __init__(self, folder: Path, task: Task, schema: pa.Schema) -> None:
        self._handle = task.handle
        self._path = folder / "staged" / quote(f"{task.handle}", safe="")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = pa.ipc.new_file(self._path, schema)
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if self._rows == 0:
            reached(CrashPoint.AFTER_FIRST_BATCH)
        self._file.write_batch(batch)
        self._rows += batch.num_rows

    def pre_commit(self) -> Committable | None:
        reached(CrashPoint.BEFORE_PRE_COMMIT)
        self._file.close()
        final = self._path.with_name(self._path.name + ".arrow")
        self._path.rename(final)
        reached(CrashPoint.AFTER_PRE_COMMIT)
        return Committable(self._handle, self._rows, "none:0")

    def abort(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)


class FolderCommitter(Committer):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _at(self, where: str, handle: HandleName) -> Path:
        return self._folder / where / (quote(str(handle), safe="") + ".arrow")

    def _outcome(self, handle: HandleName) -> Outcome:
        if self._at("data", handle).exists():
            return Outcome.COMMITTED
        return Outcome.PREPARED if self._at("staged", handle).exists() else Outcome.UNKNOWN

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        return {c.handle: Inspection(self._outcome(c.handle)) for c in committables}

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        (self._folder / "data").mkdir(parents=True, exist_ok=True)
        for number, committable in enumerate(committables):
            if number:
                reached(CrashPoint.BETWEEN_COMMITS)
            if self._outcome(committable.handle) is Outcome.PREPARED:
                staged = self._at("staged", committable.handle)
                staged.rename(self._at("data", committable.handle))
        return {c.handle: self._outcome(c.handle) for c in committables}

    def abort(self, handles: Sequence[HandleName]) -> None:
        for handle in handles:
            self._at("staged", handle).unlink(missing_ok=True)

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        found = []
        for path in (self._folder / "staged").glob("*.arrow"):
            handle = HandleName.parse(unquote(path.name.removesuffix(".arrow")))
            if handle is not None and job in (None, handle.job):
                found.append(InDoubt(handle, None, path.name))
        return found

    def forget(self, state: JobState) -> None:
        pass


class FolderSink(Sink):
    def __init__(self, options: FolderOptions, schema: pa.Schema) -> None:
        self._options = options
        self._folder = Path(options.path)
        self._schema = schema

    @property
    def target_id(self) -> str:
        return f"folder:{self._folder}"

    def writer(self, task: Task) -> Writer:
        return FolderWriter(self._folder, task, self._schema)

    def committer(self) -> Committer:
        return FolderCommitter(self._folder)

    def register(self) -> RegisterStore:
        return FileRegister(self._folder / "register")

    def preflight(self, job: str, tasks: int | None = None) -> Sequence[Finding]:
        if self._options.fail == "error":
            return [Finding(Severity.ERROR, "The folder is on fire.", "put it out.")]
        if self._options.fail == "warning":
            return [Finding(Severity.WARNING, "The folder is warm.", "open a window.")]
        return []

    def guarantee(self) -> Guarantee:
        return Guarantee("2pc", "append", "per task.", "read data/ only.")

    def fence(self, state: JobState) -> None:
        pass

    def close(self) -> None:
        pass


class FolderFormat(SinkFormat):
    name = "abs-folder"
    schemes = ("folder",)

    def parse(self, given: Mapping[str, str]) -> FolderOptions:
        return FolderOptions.parse(given)

    def at(self, url: str, table: str | None = None, stateschema: str = "abs") -> FolderOptions:
        return self.parse({"path": url.removeprefix("folder:")})

    def sink(self, options: FolderOptions, schema: pa.Schema, *, alone: bool = True) -> FolderSink:
        return FolderSink(options, schema)

    def administer(self, options: FolderOptions) -> tuple[Inventory, Committer]:
        raise NotImplementedError

    def where(self, options: FolderOptions) -> str:
        return options.path


class FolderDataSource(AbsDataSource):
    format = FolderFormat()


__all__ = ["FolderDataSource"]
