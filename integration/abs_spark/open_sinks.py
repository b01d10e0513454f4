"""All sinks of a job, open in one process: one committer and one register for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from math import inf
from operator import attrgetter
from typing import Any, TypeVar

from abs_core.aborting import attempt_all
from abs_core.contracts import Committer, RegisterStore, Sink
from abs_core.errors import AbsError, ConfigError, OptionError
from abs_core.model import AND, Committable, Finding, Guarantee, InDoubt, JobState
from abs_core.parallel import answers, side_by_side
from abs_core.patience import Patience, several
from abs_core.several import CompositeCommitter, SinkGroup
from abs_core.sinkmap import number_of
from abs_sinks.capabilities import SharesRows
from abs_sinks.door import SinkFormat
from abs_sinks.options import on_one_target
from abs_spark.sink_spec import SinkSpec, commit_at_once, group_of, groups

T = TypeVar("T")

_TRUSTED = (
    "replay=token: a batch under a token that is already committed counts as a repetition, and "
    "its rows are not compared: other rows under that token are lost"
)


class OpenSinks:
    """The sinks of one job, open in this process: one of a format, or those of an epoch function.

    Args:
        names: of the sinks, all different.
        targets: in the same order.
        register: the name of the sink whose system has the register.
        apart: names of sinks with a separate Spark job.

    Attributes:
        groups: names of sinks that share transactions.
        own: whether the register is in the sinks' own system, and can change in their transaction.
    """

    def __init__(
        self,
        names: Sequence[str],
        targets: Sequence[SinkSpec],
        register: str,
        apart: Sequence[str] = (),
    ) -> None:
        self.alone = len(targets) == 1
        self.names = tuple(names)
        self._targets = dict(zip(names, targets, strict=True))
        self.groups = tuple(
            tuple(names[place] for place in places) for places in groups(dict(enumerate(targets)))
        )
        self._apart = tuple(apart)
        self.own = commit_at_once(targets)
        self._sinks: dict[str, Sink] = {}
        try:
            for name, target in self._targets.items():
                self._sinks[name] = target.sink(alone=self.own)
        except BaseException:
            self.close()
            raise
        self._register = register

    @property
    def patience(self) -> Patience:
        """The patience with all of them together."""
        return several(target.options.patience for target in self._targets.values())

    @property
    def by_rows(self) -> bool:
        """Whether some sink's rows may be compared to recognise a replayed epoch."""
        return any(t.options.common.replay == "digest" for t in self._targets.values())

    @classmethod
    def only(cls, target: SinkSpec) -> OpenSinks:
        """The one sink of a job, which has no name."""
        return cls([""], [target], "")

    @property
    def one(self) -> Sink:
        """The sink, if it is the only one."""
        [sink] = self._sinks.values()
        return sink

    def identities(self, job: str, longest: float = inf) -> tuple[tuple[str, str], ...]:
        """Name and target of each sink, asked with its patience.

        Args:
            longest: limits the patience, in seconds.

        Raises:
            OptionError: see ``_check_apart``.
        """
        target_ids = self._ask_each(attrgetter("target_id"), job, longest)
        named = tuple(zip(self._sinks, target_ids, strict=True))
        self._check_apart(named)
        return named

    def _check_apart(self, identities: Sequence[tuple[str, str]]) -> None:
        """Raise OptionError if a sink writes changes to a target that another sink has, too, or a part.

        The changes of a sink are put in order among themselves, and compared with what was there
        before the epoch: not with those of another sink.
        """
        for name, target in identities:
            sink = self._sinks[name]
            if sink.guarantee().write != "changes":
                continue
            for other, theirs in identities:
                if other == name:
                    continue
                shares = isinstance(sink, SharesRows) and sink.shares_rows(theirs)
                if theirs == target or shares:
                    raise on_one_target(name, other, theirs)

    def if_missing(self, check: Callable[[str], None]) -> None:
        """What each sink calls, with its name, where its target is missing; see ``Sink``."""
        for name, sink in self._sinks.items():
            sink.if_missing(partial(check, name))

    @property
    def of_register(self) -> SinkSpec:
        """The sink whose system has the job's register."""
        return self._targets[self._register]

    def register(self) -> RegisterStore:
        """The store of the job's state."""
        return self._sinks[self._register].register()

    def committer(self, numbers: Mapping[str, int]) -> Committer:
        """One for all sinks; if ``own``, it may change the register in the rows' transaction."""
        if self.alone:
            return self._sinks[self.names[0]].committer()
        if self.own:
            return self._group(self.names, numbers).committer(co_commit=True)
        grouped = {name for names in self.groups for name in names}
        made = [
            ([numbers[name]], sink.committer())
            for name, sink in self._sinks.items()
            if name not in grouped
        ]
        for names in self.groups:
            shared = self._group(names, numbers).committer(co_commit=False)
            made.append(([numbers[name] for name in names], shared))
        return CompositeCommitter(made, number_of, _gone, run_calls=side_by_side)

    def preflight(self, job: str) -> list[Finding]:
        """The findings of each sink, and at the end those of all of them together."""
        findings = self._ask_each(lambda sink: sink.preflight(job), job)
        options = [(n, target.format, target.options) for n, target in self._targets.items()]
        asked = partial(together, options, apart=self._apart, at_once=self.own)
        return [*chain(*findings), *self.patience.retry(asked)]

    def _ask_each(self, ask: Callable[[Sink], T], job: str, longest: float = inf) -> list[T]:
        """Ask all sinks, each with its patience; side by side, as each first connects to its system.

        Raises:
            Exception: the first error, after all have answered; its notes hold the others.
        """
        patience = {name: self._patience(name, job).at_most(longest) for name in self._sinks}
        calls = [
            partial(patience[name].retry, partial(ask, sink)) for name, sink in self._sinks.items()
        ]
        return answers(side_by_side(calls))

    def _patience(self, name: str, job: str) -> Patience:
        return replace(self._targets[name].options.patience, job=job)

    def guarantees(self) -> list[tuple[str, Guarantee]]:
        """The guarantee of each sink under its options, by its format and name."""
        made = []
        for name, sink in self._sinks.items():
            target, guarantee = self._targets[name], sink.guarantee()
            if target.options.common.replay == "token":
                guarantee = replace(guarantee, limits=(*guarantee.limits, _TRUSTED))
            made.append((f"{target.format.name} {name}".rstrip(), guarantee))
        return made

    def shared_transactions(self) -> list[str]:
        """The sinks that share transactions, for people; a line for each group."""
        lines = []
        for names in self.groups:
            by_task = self._group(names, {name: n for n, name in enumerate(names)}).by_task
            fellows = [name for name in names if not (by_task and name in self._apart)]
            if len(fellows) > 1:
                whose = "a task's" if by_task else "an epoch's"
                more = ", and the register's change" if self.own else ""
                lines.append(f"one transaction holds {whose} rows of {', '.join(fellows)}{more}")
        return lines

    def fellows(self, name: str) -> tuple[str, ...]:
        """The sinks that share transactions with this one, including itself."""
        return next((names for names in self.groups if name in names), (name,))

    def opened(self) -> list[tuple[str, SinkSpec]]:
        """Every sink's name and target, in the order in which they were given."""
        return list(self._targets.items())

    def in_doubt(self, name: str, job: str) -> Sequence[InDoubt]:
        """The handles of a job that are pre-committed in one sink's system."""
        return self._sinks[name].committer().in_doubt(job)

    def is_empty(self) -> bool:
        """Whether every target is empty."""
        return all(sink.is_empty() for sink in self._sinks.values())

    def fence(self, state: JobState) -> None:
        attempt_all(partial(sink.fence, state) for sink in self._sinks.values())

    def _group(self, names: Sequence[str], numbers: Mapping[str, int]) -> SinkGroup:
        return group_of({numbers[name]: self._targets[name] for name in names})

    def close(self) -> None:
        for sink in self._sinks.values():
            sink.close()


def together(
    sinks: Sequence[tuple[str, SinkFormat, object]],
    tasks: int | None = None,
    *,
    apart: Sequence[str] = (),
    at_once: bool,
) -> list[Finding]:
    """The findings about all sinks of a job together, which no single preflight can make.

    Args:
        tasks: how many write an epoch.
        apart: names of sinks with a separate Spark job.
        at_once: one ordinary transaction changes their rows and the register.
    """
    if at_once:
        return []
    findings: list[Finding] = []
    for format_ in dict.fromkeys(kind for _, kind, _ in sinks):
        group = [(name, options) for name, kind, options in sinks if kind == format_]
        sharing = format_.sharing()
        if len(group) > 1 and sharing is not None:
            findings += sharing.together(group, tasks, apart=apart)
    return findings


def check_beside(names: Sequence[str], targets: Sequence[SinkSpec]) -> None:
    """Refuse sinks that cannot be combined with others, before any is built.

    Raises:
        OptionError: the sink is named.
    """
    for name, target in zip(names, targets, strict=True):
        if len(targets) > 1 and target.options.common.protocol == "idempotent":
            raise OptionError(
                f"The sink {name} has protocol=idempotent beside other sinks: its rows would be "
                "visible before the decision.",
                remedy="use protocol=2pc or wal.",
            )


def replacing(format_: SinkFormat, options: Any, name: str) -> Any:
    """The options of a sink whose content each epoch replaces, for ``outputMode("complete")``.

    Raises:
        OptionError: the sink cannot.
    """
    sharing = format_.sharing()
    new_options = None if sharing is None else sharing.replacing(options)
    if new_options is None:
        raise _no_replacement(
            f"The sink {name or format_.name} cannot replace its content in one decision"
        )
    return new_options


def check_whole(targets: Sequence[SinkSpec]) -> None:
    """Refuse ``outputMode("complete")`` for sinks that are not replaced in one transaction.

    Raises:
        OptionError: they are in several systems, or do not share transactions.
    """
    every = tuple(range(len(targets)))
    if len(targets) > 1 and groups(dict(enumerate(targets))) != [every]:
        raise _no_replacement("Sinks that do not share a transaction cannot be replaced at once")


def _no_replacement(problem: str) -> OptionError:
    return OptionError(
        f"{problem}: with outputMode complete each batch is the whole result; if it were appended, "
        "its rows would be in the target once per batch.",
        remedy="use outputMode update and a sink with write=upsert and key, which keeps running "
        "aggregates current; or tables of one PostgreSQL database with protocol=wal, which are "
        "replaced.",
    )


def joined(identities: Sequence[tuple[str, str]]) -> str:
    """All targets as one name."""
    return AND.join(sorted({target for _, target in identities}))


def _gone(number: int, committable: Committable) -> AbsError:
    return ConfigError(
        f"This query no longer has the epoch's sink number {number}, which has decided rows to "
        "commit.",
        handle=committable.handle,
        remedy="run the query with that sink once more; then remove it.",
    )
