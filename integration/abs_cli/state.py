"""Where registers and handles are, for the commands that look after them.

A register is in its sink's own system; a URL names it.

- ``kafka://host:port,host:port/topic`` names a register's topic (``abs-register`` where none is given),
  with librdkafka's settings as its query (``?security.protocol=ssl&ssl.ca.location=...``), or in a
  file of lines ``name=value`` (``?config=FILE``), where passwords belong;
- ``s3://bucket/path`` is the sink's option path, its query other options of the sink
  (``?endpoint=http://host:port&region=...&statepath=...``); credentials come by boto3's chain;
- ``postgresql://...``, ``jdbc:postgresql://...`` and libpq's keywords name a PostgreSQL database.

Of a job with several sinks a file names all of them, see ``abs_cli.sinksfile``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from abs_cli.places import Place, place_at, place_of
from abs_cli.sinksfile import SinksFile
from abs_core.errors import ConfigError
from abs_core.model import AND, Committable, JobState, NamedSink
from abs_core.protocol import Identity
from abs_core.sinkmap import number_of
from abs_sinks.shown import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from abs_core.contracts import Committer, Inventory, Stored
    from abs_core.coordinator import Coordinator
    from abs_core.model import InDoubt

SYSTEMS = ("postgres", "kafka", "s3", "s3a", "s3n")
"""How identities of targets begin, before their first colon."""

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar=["ABS_REGISTER_URL", "ABS_POSTGRES_URL"],
        show_envvar=False,  # click shows a list of them as Python's
        help="The target: a database, as in the sink's option url; kafka://host:port/registertopic; or "
        "s3://bucket/path?endpoint=...&region=... Default: ABS_REGISTER_URL, otherwise "
        "ABS_POSTGRES_URL.",
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
Schema = Annotated[
    str,
    typer.Option(
        "--stateschema", help="PostgreSQL: the schema of registers, as in the sink's option."
    ),
]
Job = Annotated[str, typer.Argument(help="The name of the job, as `abs register list` shows it.")]


@dataclass(frozen=True, slots=True)
class Registers:
    """The registers of one place, and the committers of their handles.

    Args:
        home: the registers.
        where: their place, for people.
        url: as it was given; None with a sinks file.
        sinks: the places of a job's sinks, by name; empty with a URL.
    """

    home: Place
    where: str
    url: str | None = field(default=None, repr=False)
    sinks: Mapping[str, Place] = field(default_factory=dict)

    @classmethod
    def at(cls, url: str | None, schema: str, sinks: Path | None = None) -> Registers:
        """The registers of a URL or of a sinks file (which takes precedence), without connecting.

        Raises:
            OptionError: the URL, or an option in the file, cannot be read.
            ConfigError: the file cannot be read.
        """
        if sinks is not None:
            read = SinksFile.read(sinks)
            places = {sink.name: place_of(sink) for sink in read.sinks}
            home = places[read.register]
            return cls(home, f"the targets that {sinks} names", None, places)
        if url is None:
            raise typer.BadParameter("name the target.", param_hint="--url or --sinks")
        return cls(place_at(url, schema), shown(url), url)

    @property
    def register(self) -> Inventory:
        return self.home.register

    def jobs(self) -> Sequence[Stored]:
        """Every job here; raises ConfigError if the place does not exist."""
        found = self.register.jobs()
        if not found and self.home.check is not None:
            self.home.check()
        return found

    def of(self, job: str) -> JobState:
        """The state of a job; raises ConfigError if it does not exist."""
        stored = self.register.load(job)
        if stored is None:
            raise self.unknown(job)
        return stored.state

    def unknown(self, job: str) -> ConfigError:
        """The error for a job without a register here; it names those that have one.

        Raises as ``jobs``.
        """
        known = ", ".join(stored.state.job for stored in self.jobs())
        return ConfigError(
            f"There is no register of job {job!r} here.",
            remedy=f"the jobs here are: {known}." if known else "there is no job here.",
        )

    def in_doubt(self, job: str | None) -> list[InDoubt]:
        """Pre-committed handles in every named system."""
        places = self.sinks.values() or (self.home,)
        told = [doubt for place in places for doubt in place.committer.in_doubt(job)]
        # Two sinks on one server see the same handles.
        return list({doubt.handle: doubt for doubt in told}.values())

    def committer(self, state: JobState | None) -> Committer:
        """The committer of a job's handles in every named system.

        Raises ConfigError if the file's sink of a name is not the register's.
        """
        from abs_core.parallel import side_by_side
        from abs_core.several.composite import CompositeCommitter

        if not self.sinks:
            return self.home.committer
        numbers = self._numbered(state)
        shared = {name: [n for n, of in numbers.items() if of == name] for name in numbers.values()}
        committers = ((shared[name], self.sinks[name].committer) for name in shared)
        return CompositeCommitter(committers, number_of, _gone, way=side_by_side)

    def targets_elsewhere(self, state: JobState) -> list[str]:
        """Targets of the job in systems that were not named."""
        if self.sinks:
            numbers = self._numbered(state)
            return [s.target for s in state.sinks if s.until is None and s.number not in numbers]
        return _elsewhere(state, self.home.system)

    def check_whole(self, state: JobState) -> None:
        """Raise ConfigError if the job has a target in another system."""
        if elsewhere := self.targets_elsewhere(state):
            raise ConfigError(
                f"The register of job {state.job} is here, but the job writes to another system: "
                f"{', '.join(elsewhere)}. The outcome of its handles there cannot be read from here.",
                remedy="start the job again, which commits or aborts all its handles; or name all its "
                "sinks with --sinks FILE.",
            )

    def coordinator(self, state: JobState) -> Coordinator:
        """A coordinator in the present generation: it raises none and fences nobody.

        Raises ConfigError as ``check_whole``.
        """
        self.check_whole(state)
        from abs_core.coordinator import Coordinator

        who = Identity(state.job, state.lineage, state.run, state.target)
        return Coordinator(who, self.register, self.committer(state))

    def _numbered(self, state: JobState | None) -> dict[int, str]:
        """The file's sinks by their numbers in the register; ConfigError if one has another target."""
        if state is None:
            return dict(enumerate(self.sinks))
        there = {
            name: None if p.identity is None else p.identity() for name, p in self.sinks.items()
        }
        known = state.sinks or (NamedSink(0, "", state.target, 0),)
        found: dict[int, str] = {}
        for sink in known:
            same = [name for name, target in there.items() if target == sink.target]
            if sink.name in there and sink.until is None and sink.name not in same:
                raise ConfigError(
                    f"In the file, sink {sink.name} writes to "
                    f"{there[sink.name] or 'a target without a name'}; in the register of job "
                    f"{state.job}, it writes to {sink.target}.",
                    remedy="correct the file.",
                )
            if same:
                found[sink.number] = sink.name if sink.name in same else same[0]
        return found


def _elsewhere(state: JobState, here: str) -> list[str]:
    """Targets outside a place, as far as their names show."""
    targets = state.target.split(AND)
    systems = ((target, target.partition(":")[0]) for target in targets)
    apart = [t for t, system in systems if not system.startswith(here) and _is_system(system)]
    # Several of one kind: which of them lies here the register's place alone does not tell.
    return apart if apart or len({_container(t) for t in targets}) == 1 else targets


def _container(target: str) -> str:
    """The database, cluster or folder of a target."""
    if target.startswith("s3"):
        return target
    return "/".join(target.split("/")[: 2 if target.startswith("postgres:") else 1])


def _is_system(name: str) -> bool:
    """Whether target identities have this prefix."""
    from abs_core.formats import format_of

    return name in SYSTEMS or format_of(name) is not None


def _gone(number: int, committable: Committable) -> ConfigError:
    return ConfigError(
        f"The file does not name sink number {number} of the epoch.",
        job=committable.handle.job,
        epoch=committable.handle.epoch,
        remedy="add it to the file; `abs register show` shows its name and target.",
    )
