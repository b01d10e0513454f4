"""A user's own write as the only sink of a job; see ``abs_core.ownwrite``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NoReturn

import pyarrow as pa

from abs_core.contracts import Committer, Inventory, RegisterStore, Sink, Task, Writer
from abs_core.errors import ConfigError
from abs_core.model import Finding, Guarantee
from abs_core.ownwrite import (
    ONCE,
    TARGET,
    Applied,
    OwnWrite,
    Promise,
    Write,
    without_functions,
)
from abs_core.patience import Patience
from abs_core.registers import FileRegister
from abs_sinks.door import SinkFormat
from abs_sinks.options import CommonOptions
from abs_sinks.register_at import folder_of, open_register, patience_with

_VISIBLE = "as write makes it so"
_LIMITS = {
    Promise.EXACTLY_ONCE: "only if write stores rows and version in one transaction, which changes "
    "nothing where the stored version is not lower: a write whose process was killed may still take "
    "effect, and then it is the second of two",
    Promise.AT_LEAST_ONCE: "applied is not given: an epoch that was killed before it was recorded is "
    "written again, under the same token",
    Promise.AT_MOST_ONCE: "applied is not given: an epoch that was killed before it was recorded is "
    "not written again, and may be missing",
}


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class OwnOptions:
    """A job with a write of its own.

    Args:
        place: of the register, as ``open_register`` takes it.
    """

    write: Write
    applied: Applied | None
    promise: Promise
    place: str
    common: CommonOptions

    @property
    def patience(self) -> Patience:
        """The patience with the register."""
        return patience_with(self.place, self.common.patience)

    def __repr__(self) -> str:
        name = getattr(self.write, "__qualname__", type(self.write).__name__)
        return f"<the function {name}: every row {self.promise}>"


@dataclass(eq=False, repr=False)
class OwnSink(Sink):
    """It has no writers: the driver calls the user's function as the commit of a begin."""

    options: OwnOptions
    own: OwnWrite = field(init=False)

    def __post_init__(self) -> None:
        options = self.options
        self.own = OwnWrite(options.write, options.applied, options.promise)

    @property
    def target_id(self) -> str:
        """The same for all such jobs of a register."""
        return TARGET

    def writer(self, task: Task) -> Writer:
        raise NotImplementedError("a write of the user's own has no tasks")

    def committer(self) -> Committer:
        return self.own

    def register(self) -> RegisterStore:
        return open_register(self.options.place)

    def preflight(self, job: str, tasks: int | None = None) -> Sequence[Finding]:
        return ()

    def guarantee(self) -> Guarantee:
        promise = self.options.promise
        reader = "as the target's readers are used to"
        limits = (_LIMITS[promise],)
        return Guarantee(ONCE, "of your own", _VISIBLE, reader, limits, times=str(promise))


class OwnFormat(SinkFormat):
    """For ``abs_spark.once``, and for commands on its registers in a folder. No options name it."""

    name: ClassVar[str] = ONCE
    schemes: ClassVar[tuple[str, ...]] = (ONCE,)

    def parse(self, options: Mapping[str, str]) -> NoReturn:
        raise NotImplementedError("functions are no options")

    def at(self, url: str, table: str | None = None, stateschema: str = "abs") -> Path:
        """The folder of the registers."""
        folder = folder_of(url)
        assert folder is not None, "a system's own format looks after its registers"
        return folder

    def sink(self, options: OwnOptions, schema: pa.Schema, *, alone: bool = True) -> OwnSink:
        return OwnSink(options)

    def administer(self, options: Path) -> tuple[Inventory, Committer]:
        return FileRegister(options), without_functions(leave=False)

    def check_there(self, options: Path) -> None:
        if not options.is_dir():
            raise ConfigError(
                f"There is no folder {options}.",
                remedy="name the folder that the job has as register=..., on this machine.",
            )

    def shown(self, url: str) -> str:
        return str(folder_of(url))

    def where(self, options: OwnOptions) -> str:
        return repr(options)
