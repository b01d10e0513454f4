"""The door to the sinks: one description per system, and how the installed ones are found.

The sinks of this package are found by their folder: ``abs_sinks.<system>.door`` has ``FORMAT``, whose
name is ``abs-<system>``: also in a zip of ``--py-files``, which has no metadata. Sinks of other
packages are found by their entry points:

    [project.entry-points.abs_sinks]
    abs-sqlite = "abs_sqlite:FORMAT"

Engines, the command ``abs`` and the audit know systems by this module only.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any, ClassVar, Protocol

import pyarrow as pa

import abs_sinks
from abs_clients.extras import missing
from abs_core.contracts import Committer, Inventory, Sink
from abs_core.errors import ConfigError, OptionError
from abs_core.model import Finding, Guarantee, JobState, job_key
from abs_core.patience import Patience
from abs_core.wal import SegmentStore
from abs_sinks.asof import NOW, AsOf
from abs_sinks.capabilities import Attempts, LetterPlaces, Log, Sharing
from abs_sinks.options import CommonOptions
from abs_sinks.urls import scheme_of

GROUP = "abs_sinks"


class Options(Protocol):
    """A sink's options: hashable and picklable. Their ``repr`` shows no secret (I9)."""

    @property
    def common(self) -> CommonOptions: ...

    @property
    def patience(self) -> Patience: ...


@dataclass(frozen=True, slots=True)
class Around:
    """What is known of a job besides the options of one sink, before it is started.

    Args:
        schema: of the input.
        tasks: how many tasks write an epoch.
        composes: the sink is one of several that do not commit at once.
        own_register: the register is in the sink's own system.
    """

    schema: pa.Schema | None = None
    tasks: int | None = None
    composes: bool = False
    own_register: bool = True


class SinkFormat(ABC):
    """A kind of sink: everything that engines and commands know of its system.

    It has no state: two objects of a class are equal. Its module imports no library of its system.

    Attributes:
        name: as in ``writeStream.format(name)``.
        schemes: URL schemes of its system, without ``://``. Each target identity (``Sink.target_id``)
            begins with one of them and a colon.
        marks: options of no other sink, for ``abs doctor``; one with a dot at its end is a prefix.
        library: a module whose import fails if the system's libraries are not installed.
        segments_beside: under ``protocol=wal``, the option ``wal`` defaults to the engine's checkpoint.
        buries: the option ``deadletter`` may name another sink of an epoch (``GivingSink``).
        past: readers can stop at an epoch: ``as_of``.
        audit: ``module:class``, an ``abs_audit.contracts.Side``. It is a text because the audit stands
            above the sinks and has libraries of its own. Default: the rows are those of ``read``.
    """

    name: ClassVar[str]
    schemes: ClassVar[tuple[str, ...]]
    marks: ClassVar[tuple[str, ...]] = ()
    library: ClassVar[str | None] = None
    segments_beside: ClassVar[bool] = False
    buries: ClassVar[bool] = False
    past: ClassVar[bool] = False
    audit: ClassVar[str] = "abs_audit.others:OtherSide"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    @abstractmethod
    def parse(self, options: Mapping[str, str]) -> Any:
        """The options (``Options``) of a job; raises ``OptionError`` with everything that is wrong."""

    @abstractmethod
    def at(self, url: str, table: str | None = None, stateschema: str = "abs") -> Any:
        """The options of any sink at a URL, as far as commands need them; does not connect.

        Args:
            table: the table, topic or the like; None: the system is meant, to look after its jobs.
            stateschema: where registers are, in systems that have schemas.

        Raises:
            OptionError: the URL cannot be read; the message does not show it (I9).
        """

    @abstractmethod
    def sink(self, options: Any, schema: pa.Schema, *, alone: bool = True) -> Sink:
        """A sink for these options and this input; does not connect.

        Args:
            schema: empty where the input is not known, for guarantee and target.
            alone: the job's register is the sink's own, and may change in the rows' transaction.
        """

    @abstractmethod
    def administer(self, options: Any) -> tuple[Inventory, Committer]:
        """The registers of these options, and a committer for the handles of all jobs there."""

    def read(self, options: Any) -> pa.RecordBatchReader:
        """The rows that a reader sees now, for the audit."""
        raise ConfigError(f"The rows of {self.name} cannot be read here.", remedy="audit a copy.")

    def partitions(self, options: Any) -> Sequence[str]:
        """Columns of ``read`` by which the target is partitioned: a job may have derived them."""
        return ()

    def guarantee(self, options: Any) -> Guarantee:
        """What the options promise, without a connection."""
        with closing(self.sink(options, pa.schema([]))) as sink:
            return sink.guarantee()

    def where(self, options: Any) -> str:
        """What the options write to, for people; no secret (I9)."""
        return f"a target of {self.name}"

    def dataset(self, options: Any, target: str) -> tuple[str, str]:
        """Namespace and name of a target (``Sink.target_id``) for OpenLineage; no secret (I9)."""
        scheme, _, rest = target.partition(":")
        place, _, name = rest.strip("/").partition("/")
        return (f"{scheme}://{place}", name or "/") if name else (scheme, place)

    def identity(self, options: Any) -> str | None:
        """The target's identity, as ``Sink.target_id``; it may connect."""
        with closing(self.sink(options, pa.schema([]))) as sink:
            return sink.target_id

    def preflight(self, options: Any, around: Around) -> Sequence[Finding]:
        """Check whether a job with these options would run; changes nothing."""
        schema = pa.schema([]) if around.schema is None else around.schema
        alone = around.own_register and not around.composes
        with closing(self.sink(options, schema, alone=alone)) as sink:
            return sink.preflight(job_of(options) or "doctor", around.tasks)

    def logins(self, options: Any) -> Sequence[Finding]:
        """Who the options log in as at each server, and until when; no secret (I9)."""
        return ()

    def as_of(self, mark: str, options: Any = None) -> AsOf:
        """How readers stop at the epoch of a ``Shown.mark``; with options: how Spark reads it."""
        return NOW

    def sharing(self) -> Sharing | None:
        """How several such sinks share transactions; None: they share none."""
        return None

    def attempts(self) -> Attempts | None:
        """Rows of undecided attempts in the target; None: it never holds some."""
        return None

    def letters(self) -> LetterPlaces | None:
        """Places that keep dead letters; None: the system has none."""
        return None

    def log(self) -> Log | None:
        """The target's own log of commits; None: it has none."""
        return None

    def segments(self, url: str) -> SegmentStore | None:
        """The segments of a write-ahead log at a URL of this system; None if it keeps none."""
        return None

    def recognises(self, options: Mapping[str, str]) -> bool:
        """Whether these options, by lower-case names, can be of no other system."""
        prefixes = tuple(mark for mark in self.marks if mark.endswith("."))
        return any(name in self.marks or name.startswith(prefixes) for name in options)

    def claims(self, url: str) -> bool:
        """Whether a URL is of this system."""
        return scheme_of(url) in self.schemes

    def shown(self, url: str) -> str:
        """A URL of this system for people, without user, password and query (I9)."""
        if "@" in url:
            return f"{scheme_of(url)}://(not shown: there is an @ in it)"
        return re.split(r"[?#]", url.strip(), maxsplit=1)[0]

    def container(self, target: str) -> str:
        """The part of a target's identity that says which registers see its handles."""
        return target

    def check_there(self, options: Any) -> None:  # noqa: B027 - most systems have one place
        """Raise ConfigError if the place that the options name for registers does not exist."""

    def forget(self, options: Any, state: JobState, letters: bool | None = None) -> Sequence[str]:
        """Forget what guards rows that are gone; not None: all traces, True: dead letters, too."""
        return ()


def as_input(kind: SinkFormat, letters: pa.RecordBatch) -> pa.RecordBatch:
    """Dead letters of other sinks (rows of ``LETTERS``) as input for a sink of this kind."""
    places = kind.letters()
    return letters if places is None else places.as_input(letters)


def job_of(options: Options) -> str | None:
    """The register key that the options name."""
    common = options.common
    return None if common.job is None else job_key(common.job, common.epoch)


def format_names() -> list[str]:
    """The names of the installed formats."""
    return sorted(_installed())


def format_named(name: str) -> SinkFormat:
    """The format of that name, ready to be used.

    Raises OptionError if there is none; ConfigError if it cannot be loaded, or lacks a library.
    """
    entry = _own().get(name) or _installed().get(name)
    if entry is None:
        raise OptionError(
            f"There is no sink {name!r}.",
            remedy=f"use one of {', '.join(format_names())}; a sink of another package is found by its "
            f"entry point of the group {GROUP}, which is installed for the driver and every executor.",
        )
    return _ready(_loaded(entry))


def format_of(scheme: str) -> SinkFormat | None:
    """The format with this URL scheme, which may lack its libraries; None if none is installed.

    Raises:
        ConfigError: an installed format cannot be loaded.
    """
    return next((system for system in _each() if scheme in system.schemes), None)


def find_format(url: str) -> SinkFormat | None:
    """The format of a URL, ready to be used; None if no installed one claims it.

    Raises:
        ConfigError: an installed format cannot be loaded, or a library of this one is not installed.
    """
    found = _claimant(url)
    return None if found is None else _ready(found)


def format_at(url: str) -> SinkFormat:
    """As ``find_format``; raises OptionError if there is none."""
    system = find_format(url)
    if system is None:
        schemes = ", ".join(f"{own.schemes[0]}:" for own in map(_loaded, _own().values()))
        begins = f"begins with {scheme_of(url)}:, which" if scheme_of(url) else "has no scheme that"
        raise OptionError(
            f"The URL {begins} is not a known system with registers.",
            remedy=f"begin it with one of {schemes}; a sink of another package is found by its entry "
            f"point of the group {GROUP}.",
        )
    return system


def recognised(options: Mapping[str, str]) -> str | None:
    """The name of the first format that recognises these options as its own; None if none does."""
    named = {name.lower(): value for name, value in options.items()}
    return next((system.name for system in _each() if system.recognises(named)), None)


def shown(url: str) -> str:
    """A URL for people: without user, password and query (I9); the scheme alone if none claims it."""
    if url.startswith("/"):
        return url  # a folder, which has none
    try:
        system = _claimant(url)
    except ConfigError:
        system = None  # another package is broken: who opens the URL is told so
    scheme = scheme_of(url)
    hidden = f"{scheme}://(not shown)" if scheme else "a target without a scheme"
    return hidden if system is None else system.shown(url)


def _claimant(url: str) -> SinkFormat | None:
    # Without a scheme it is of this package, or a path: no other package needs to be imported.
    entries = (_installed() if scheme_of(url) else _own()).values()
    return next((system for system in map(_loaded, entries) if system.claims(url)), None)


def _each() -> Iterator[SinkFormat]:
    """All formats, this package's first: another package can take none of their URLs."""
    return map(_loaded, _installed().values())


def _installed() -> dict[str, EntryPoint]:
    others = {entry.name: entry for entry in entry_points(group=GROUP)}
    return {**_own(), **{name: entry for name, entry in others.items() if name not in _own()}}


@cache
def _own() -> dict[str, EntryPoint]:
    """The sinks of this package, by the folders in it."""
    doors = {
        module.name: f"{abs_sinks.__name__}.{module.name}.door"
        for module in iter_modules(abs_sinks.__path__)
        if module.ispkg
    }
    return {
        f"abs-{system}": EntryPoint(f"abs-{system}", f"{door}:FORMAT", GROUP)
        for system, door in doors.items()
        if find_spec(door) is not None
    }


def _loaded(entry: EntryPoint) -> SinkFormat:
    whose = f"The entry point {entry.name} = {entry.value} of the group {GROUP}"
    try:
        system = entry.load()
    except Exception as error:  # a third-party module may raise anything when it is imported
        raise ConfigError(
            f"{whose} cannot be loaded: {type(error).__name__}: {error}.",
            remedy="repair or uninstall the package that provides it.",
        ) from error
    if not isinstance(system, SinkFormat) or system.name != entry.name:
        raise ConfigError(
            f"{whose} is a {type(system).__name__}, not a SinkFormat of that name.",
            remedy=f"make it name an object of {SinkFormat.__module__}.SinkFormat.",
        )
    return system


def _ready(format_: SinkFormat) -> SinkFormat:
    """The format, once its libraries are imported."""
    if format_.library is not None:
        try:
            import_module(format_.library)
        except ImportError as error:
            # The extra of a sink of ours has the name of its folder, and all that it imports.
            extra = format_.name.removeprefix("abs-") if format_.name in _own() else None
            lacking = missing(error, f"The sink {format_.name}", extra)
            if lacking is None:
                raise
            raise lacking from error
    return format_
