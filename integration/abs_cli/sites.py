"""Where registers and handles are, for the commands that look after them.

A register is in its sink's own system; a URL names it, see ``abs_sinks.door`` and each system's door.
Of a job with several sinks a file names all of them, see ``abs_cli.sinksfile``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abs_cli.sinksfile import FiledSink, SinksFile
from abs_core.errors import ConfigError, ContentionError, OptionError
from abs_core.events import Observer, ignore
from abs_core.model import AND, Committable, JobState, NamedSink
from abs_core.protocol import RunIdentity
from abs_core.sinkmap import number_of

if TYPE_CHECKING:
    # Drivers and Arrow take a second to import; `abs --help` shall not wait for them.
    from collections.abc import Sequence

    from abs_core.contracts import Committer, Inventory, Stored
    from abs_core.coordinator import Coordinator
    from abs_core.model import InDoubt
    from abs_sinks.door import SinkFormat

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar=["ABS_REGISTER_URL", "ABS_POSTGRES_URL"],
        show_envvar=False,  # click shows a list of them as Python's
        help="The target: a database, as in the sink's option url; kafka://host:port/registertopic; or "
        "s3://bucket/path?endpoint=...&region=... For a job of abs_spark.once its register, which may "
        "be a folder. Default: ABS_REGISTER_URL, otherwise ABS_POSTGRES_URL.",
    ),
]
Sinks = Annotated[
    Path | None,
    typer.Option(
        "--sinks",
        metavar="FILE",
        help="For a job with several sinks, instead of --url: a TOML file with one table [sinks.NAME] "
        "(format, options) for each sink, and register = 'NAME'.",
    ),
]
SCHEMA = typer.Option(
    "--stateschema", help="PostgreSQL: the schema of registers, as in the sink's option."
)
Schema = Annotated[str, SCHEMA]
Job = Annotated[str, typer.Argument(help="The name of the job, as `abs register list` shows it.")]


@dataclass(frozen=True)
class Site:
    """The registers of one system, and the committer of their handles."""

    format: SinkFormat
    options: Any

    @classmethod
    def at(cls, url: str, schema: str) -> Site:
        """The site of a URL, or of a folder that jobs with a write of their own name as register.

        Does not connect. Raises OptionError if the URL cannot be read.
        """
        from abs_sinks.door import format_at
        from abs_sinks.register_at import folder_of

        if folder_of(url) is None:
            format_ = format_at(url)
        else:
            from abs_spark.foreach.own_sink import OwnFormat

            format_ = OwnFormat()
        return cls(format_, format_.at(url, None, schema))

    @classmethod
    def of(cls, sink: FiledSink) -> Site:
        """The site of one sink of a job, without connecting.

        Raises:
            OptionError: its options cannot be read, or select a protocol without a decision; or there
                is no such format.
            ConfigError: the format cannot be loaded.
        """
        from abs_sinks.door import format_named
        from abs_spark.sink_spec import parse

        format_ = format_named(sink.format)
        options = parse(format_, sink.options, started=False)
        if options.common.protocol == "idempotent":
            raise OptionError(
                f"The sink {sink.name} has protocol=idempotent, which cannot be used together with "
                "other sinks: its rows are visible before the decision.",
                remedy="set protocol=2pc or wal; for a job with this sink alone use --url.",
            )
        return cls(format_, options)

    @cached_property
    def _both(self) -> tuple[Inventory, Committer]:
        return self.format.administer(self.options)

    @property
    def register(self) -> Inventory:
        return self._both[0]

    @property
    def committer(self) -> Committer:
        return self._both[1]


@dataclass(frozen=True, slots=True)
class Registers:
    """The registers of one place, and the committers of their handles.

    Args:
        home: the registers.
        where: their place, for people.
        url: as it was given; None with a sinks file.
        sinks: the sites of a job's sinks, by name; empty with a URL.
        job: whose sinks these are, if the file says so.
    """

    home: Site
    where: str
    url: str | None = field(default=None, repr=False)
    sinks: Mapping[str, Site] = field(default_factory=dict)
    job: str | None = None

    @classmethod
    def at(cls, url: str | None, schema: str, sinks: Path | None = None) -> Registers:
        """The registers of a URL or of a sinks file (which takes precedence), without connecting.

        Raises:
            OptionError: the URL, or an option in the file, cannot be read.
            ConfigError: the file cannot be read.
        """
        if sinks is not None:
            read = SinksFile.read(sinks)
            sites = {sink.name: Site.of(sink) for sink in read.sinks}
            home = sites[read.register]
            return cls(home, f"the targets that {sinks} names", None, sites, read.job)
        if url is None:
            raise typer.BadParameter("name the target.", param_hint="--url or --sinks")
        site = Site.at(url, schema)
        return cls(site, site.format.shown(url), url)

    @property
    def register(self) -> Inventory:
        return self.home.register

    def jobs(self) -> Sequence[Stored]:
        """Every job here; raises ConfigError if the place does not exist."""
        jobs = self.register.jobs()
        if not jobs:
            self.home.format.check_there(self.home.options)
        return jobs

    def of(self, job: str) -> JobState:
        """The state of a job; raises ConfigError if it does not exist."""
        return self.stored(job).state

    def stored(self, job: str) -> Stored:
        """The same, with the time of its last change."""
        stored = self.register.load(job)
        if stored is None:
            raise self.unknown(job)
        return stored

    def check_same(self, asked: JobState) -> None:
        """Raise ContentionError if a register has changed since a person was asked about it."""
        if self.of(asked.job) != asked:
            raise ContentionError(
                "The job's register has changed while you were asked: the job is running, or another "
                "command acts on it.",
                job=asked.job,
                remedy="stop the job, then run the command again.",
            )

    def unknown(self, job: str) -> ConfigError:
        """The error for a job without a register here; it names those that have one.

        Raises as ``jobs``.
        """
        names = ", ".join(stored.state.job for stored in self.jobs())
        place = "register of the file" if self.sinks else "URL"
        look = (
            f"name one of the jobs here: {names}"
            if names
            else f"look at the {place}: no job is here"
        )
        return ConfigError(f"There is no register of job {job!r} here.", remedy=f"{look}.")

    def attempted(self) -> Sequence[str]:
        """See ``Attempts.places``; empty with a sinks file."""
        attempts = None if self.sinks else self.home.format.attempts()
        return () if attempts is None else attempts.places(self.home.options)

    def give_up(self, state: JobState) -> None:
        """See ``Attempts``; does nothing with a sinks file."""
        attempts = None if self.sinks else self.home.format.attempts()
        if attempts is not None:
            attempts.give_up(self.home.options, state)

    def forget(self, state: JobState, letters: bool | None = None) -> list[str]:
        """See ``SinkFormat``, of every named system."""
        sites = self.sinks.values() or (self.home,)
        lines = [
            line for site in sites for line in site.format.forget(site.options, state, letters)
        ]
        return list(dict.fromkeys(lines))

    def in_doubt(self, job: str | None) -> list[InDoubt]:
        """Pre-committed handles in every named system."""
        sites = self.sinks.values() or (self.home,)
        doubts = [doubt for site in sites for doubt in site.committer.in_doubt(job)]
        # Two sinks on one server see the same handles.
        return list({doubt.handle: doubt for doubt in doubts}.values())

    def committer(self, state: JobState | None, *, leave: bool = False) -> Committer:
        """The committer of a job's handles in every named system.

        Args:
            leave: the job is given up: what a write of its own has begun may stay as it is.

        Raises ConfigError if the file's sink of a name is not the register's.
        """
        from abs_core import ownwrite
        from abs_core.parallel import side_by_side
        from abs_core.several import CompositeCommitter

        if state is not None and state.target == ownwrite.TARGET:
            return ownwrite.without_functions(leave=leave)
        if not self.sinks:
            return self.home.committer
        numbers = self._numbered(state)
        shared = {name: [n for n, of in numbers.items() if of == name] for name in numbers.values()}
        committers = ((shared[name], self.sinks[name].committer) for name in shared)
        return CompositeCommitter(committers, number_of, _gone, run_calls=side_by_side)

    def targets_elsewhere(self, state: JobState) -> list[str]:
        """Targets of the job in systems that were not named."""
        if self.sinks:
            numbers = self._numbered(state)
            return [s.target for s in state.sinks if s.until is None and s.number not in numbers]
        return _elsewhere(state, self.home.format)

    def check_whole(self, state: JobState) -> None:
        """Raise ConfigError if the job has a target in another system."""
        if elsewhere := self.targets_elsewhere(state):
            raise ConfigError(
                f"The register of job {state.job} is here, but the job writes to another system: "
                f"{', '.join(elsewhere)}. The outcome of its handles there cannot be read from here.",
                remedy="start the job again, which commits or aborts all its handles; or name all its "
                "sinks with --sinks FILE.",
            )

    def coordinator(self, state: JobState, observe: Observer = ignore) -> Coordinator:
        """A coordinator in the present generation: it raises none and fences nobody.

        Raises ConfigError as ``check_whole``.
        """
        self.check_whole(state)
        from abs_core.coordinator import Coordinator

        who = RunIdentity(state.job, state.lineage, state.run, state.target)
        return Coordinator(who, self.register, self.committer(state), observe=observe)

    def _numbered(self, state: JobState | None) -> dict[int, str]:
        """The file's sinks by their numbers in the register; ConfigError if one has another target."""
        if state is None:
            return dict(enumerate(self.sinks))
        there = {name: site.format.identity(site.options) for name, site in self.sinks.items()}
        entries = state.sinks or (NamedSink(0, "", state.target, 0),)
        names: dict[int, str] = {}
        for sink in entries:
            same = [name for name, target in there.items() if target == sink.target]
            if sink.name in there and sink.until is None and sink.name not in same:
                raise ConfigError(
                    f"In the file, sink {sink.name} writes to "
                    f"{there[sink.name] or 'a target without a name'}; in the register of job "
                    f"{state.job}, it writes to {sink.target}.",
                    remedy="correct the file.",
                )
            if same:
                names[sink.number] = sink.name if sink.name in same else same[0]
        return names


def _elsewhere(state: JobState, here: SinkFormat) -> list[str]:
    """Targets outside a system, as far as their names show."""
    from abs_sinks.door import format_of

    targets = state.target.split(AND)
    systems = {target: format_of(target.partition(":")[0]) for target in targets}
    apart = [target for target in targets if systems[target] not in (here, None)]
    # Several of one kind: which of them lies here the register's place alone does not tell.
    return apart if apart or len({here.container(target) for target in targets}) == 1 else targets


def _gone(number: int, committable: Committable) -> ConfigError:
    return ConfigError(
        f"The file does not name sink number {number} of the epoch.",
        job=committable.handle.job,
        epoch=committable.handle.epoch,
        remedy="add it to the file; `abs register show` shows its name and target.",
    )
