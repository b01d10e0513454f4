"""A user's own write as the only sink of a job; see ``abs_core.ownwrite``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

import pyarrow as pa

from abs_core.contracts import Committer, Inventory, RegisterStore, Sink, Task, Writer
from abs_core.model import Finding, Guarantee
from abs_core.ownwrite import ONCE, Applied, OwnWrite, Promise, Write
from abs_core.patience import Patience
from abs_sinks.door import SinkFormat
from abs_sinks.options import CommonOptions
from abs_sinks.register_at import open_register, patience_with

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
        """The same for all such jobs of a register: of their targets nothing is known."""
        return f"{ONCE}:own"

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
    """Only for ``abs_spark.once``: no options name it, and no command finds it."""

    name: ClassVar[str] = ONCE
    schemes: ClassVar[tuple[str, ...]] = (ONCE,)

    def parse(self, given: Mapping[str, str]) -> NoReturn:
        raise NotImplementedError("functions are no options")

    def at(self, url: str, table: str | None = None, stateschema: str = "abs") -> NoReturn:
        raise NotImplementedError("functions have no URL")

    def sink(self, options: OwnOptions, schema: pa.Schema, *, alone: bool = True) -> OwnSink:
        return OwnSink(options)

    def administer(self, options: Any) -> tuple[Inventory, Committer]:
        raise NotImplementedError("the register's own system looks after it")

    def where(self, options: OwnOptions) -> str:
        return repr(options)
