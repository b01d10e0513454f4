"""``abs register repair``: epochs that are gone in one target are written to it again."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote

import typer
from rich.markup import escape
from rich.table import Table

from abs_cli.output import AsJson, errors, people, print_json, report
from abs_cli.sites import Job, Registers, Schema, Sinks, Url
from abs_cli.trail import noted
from abs_core.births.targets import spans
from abs_core.errors import (
    ConfigError,
    ContentionError,
    OptionError,
    ProtocolError,
    ReplayMismatchError,
)
from abs_core.lookback import past_of
from abs_core.model import JobState, Recent, Shown, job_key

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from abs_core.contracts import Inventory, Stored


@dataclass(frozen=True, slots=True)
class Lost:
    """An epoch that is to be written to one target again.

    Args:
        job: for the option ``job`` of the batch write.
        token: for its option ``epoch``.
        begun: whether it was begun.
        start, end: the offsets of its input in the checkpoint, one for each source; empty: unknown.
    """

    recent: Recent
    shown: Shown
    job: str
    token: str
    begun: bool = False
    start: tuple[Any, ...] = ()
    end: tuple[Any, ...] = ()

    def document(self) -> dict[str, Any]:
        head = {"epoch": self.recent.epoch, "rows": self.shown.rows}
        write = {"job": self.job, "token": self.token}
        return {**head, **write, "from": list(self.start), "to": list(self.end)}


def repair(
    job: Job,
    epochs: Annotated[str, typer.Option("--epochs", help="As the error names them: 4 to 7, 9")],
    url: Url = None,
    stateschema: Schema = "abs",
    sinks: Sinks = None,
    *,
    sink: Annotated[
        str | None,
        typer.Option("--sink", help="The sink whose target went back, if there are several."),
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", help="The query's checkpointLocation.")
    ] = None,
    finish: Annotated[
        bool, typer.Option("--done", help="Check that all are written, and let the job start.")
    ] = False,
    keyed: Annotated[
        bool,
        typer.Option("--keyed", help="The sink writes by key: upsert, or changes."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write epochs to one target again, which no longer has their rows. Stop the job first.

    For each epoch it shows its rows, the offsets of its input in the checkpoint, a job's name and a
    token: read that input again, and write it by a batch write to that sink alone, with this name and
    token as the options job and epoch. Then run it with --done: it compares what was written, and lets
    the job start. The name is an older one if the job was renamed after that write had begun.

    Epochs whose rows are in the target are refused, or with --done passed over: both can be repeated.
    Refused is also an epoch of which a part may be there, as all of it would be written: not with
    --keyed, since the sink then replaces rows that are there.
    """
    state = Registers.at(url, stateschema, sinks)
    stored = state.stored(job)
    if sink is not None and sink not in state.sinks:
        raise ConfigError(
            f"The file names no sink {sink!r}.",
            remedy=f"use {', '.join(state.sinks) or '--sinks'}.",
        )
    there = state.register if sink is None else state.sinks[sink].register
    number = _number_of(stored.state, sink)
    lost = _Repair(stored.state, sink, number, there).epochs(_numbers(epochs), checkpoint)
    gone, partly = _gone(state, stored.state, lost)
    if not finish:
        _check_gone(stored.state, lost, gone)
        if not keyed:
            _check_whole(stored.state, lost, partly)
        _show(lost, as_json=as_json)
        return
    left = [entry for entry in lost if entry.begun or gone.get(entry.recent.epoch) is not False]
    for entry in lost:
        if entry not in left:
            errors.print(f"epoch {entry.recent.epoch}: its rows are there, nothing is recorded")
    with noted("repair", job, state.url, epochs=epochs):
        again = {entry.recent.epoch: _again(stored.state, entry, there) for entry in left}
        _check_all_named(stored.state, lost, gone)
        _record(state.register, stored, again)
    rows = sum(entry.shown.rows for entry in left)
    text = (
        f"[green]repaired[/] {escape(job)}: {len(left)} epoch(s) with {rows} rows are there again"
    )
    report(text, as_json=as_json, did="repaired", job=job, rows=rows)


def _numbers(text: str) -> list[int]:
    """The epochs of ``4 to 7, 9``."""
    numbers: set[int] = set()
    for span in text.split(","):
        first, _, last = span.partition(" to ")
        try:
            epochs = range(int(first), int(last or first) + 1)
        except ValueError:
            epochs = range(0)
        if not epochs:
            raise OptionError(
                f"These are no epochs: {text[:100]!r}.",
                remedy="write them as the error does: 4 to 7, 9.",
            )
        numbers.update(epochs)
    return sorted(numbers)


def _number_of(state: JobState, sink: str | None) -> int:
    """The number of a sink; None: of the only one.

    Raises:
        ConfigError: there are several, or none of that name.
    """
    numbers = {entry.name: entry.number for entry in state.sinks if entry.until is None}
    if not numbers:
        return 0
    if sink in numbers:
        return numbers[sink]
    if sink is None and len(numbers) == 1:
        return next(iter(numbers.values()))
    raise ConfigError(
        f"The job {state.job} writes to {len(numbers)} sinks: {', '.join(numbers)}.",
        remedy="name the one whose target went back with --sink.",
    )


@dataclass(frozen=True, slots=True)
class _Repair:
    """What is known of a repair run of one sink.

    Args:
        sink: its name; None: the job's only one.
        number: in the register.
        there: where the batch writes have their registers.
    """

    state: JobState
    sink: str | None
    number: int
    there: Inventory

    def epochs(self, numbers: Sequence[int], checkpoint: str | None) -> list[Lost]:
        """What the register and the checkpoint tell of these epochs. Raises as ``_lost``."""
        batches = {stored.state.job: stored.state for stored in self.there.jobs()}
        return [self._lost(number, batches, checkpoint) for number in numbers]

    def _lost(self, epoch: int, batches: Mapping[str, JobState], checkpoint: str | None) -> Lost:
        """What the register and the checkpoint tell of an epoch.

        Raises:
            ProtocolError: the register does not tell how many rows it had there.
            ReplayMismatchError: the checkpoint holds another input.
        """
        recent = self.state.record(epoch)
        marks = recent.shown if recent else ()
        shown = next((mark for mark in marks if mark.sink == self.number), None)
        if recent is None or shown is None:
            raise ProtocolError(
                f"The register does not record what epoch {epoch} wrote there: it is too old, or had "
                "no rows there.",
                job=self.state.job,
                epoch=epoch,
                remedy="name those that the error names; what is gone of older epochs is lost to a "
                "repair run: compare with `abs audit`.",
            )
        job, token, begun = self._token(epoch, shown, batches)
        lost = Lost(recent, shown, job, token, begun)
        return lost if checkpoint is None else _with_input(self.state, lost, checkpoint)

    def _token(
        self, epoch: int, shown: Shown, batches: Mapping[str, JobState]
    ) -> tuple[str, str, bool]:
        """The job's name and the token for an epoch, and whether a batch write was begun with them.

        By register and mark, which a repair run renews: what is gone once more is written under another
        token. A topic may show the same mark once more: then by the number of earlier ones. By nothing
        else, so that whoever asks before it is recorded is told the same token: a renamed job keeps its
        register, so what was begun under its old name is found.
        """
        named = f"-{self.sink}" if self.sink else ""
        marks = f"{self.state.register} {shown.mark}", shown.mark  # the second: an older release's
        digest, older = (blake2b(mark.encode(), digest_size=4).hexdigest() for mark in marks)
        ours = re.compile(rf"repair-(\d+)-{epoch}-({digest}|{older}){re.escape(named)}")
        used = [0]
        for key, batch in batches.items():
            name, _, token = key.partition("@")
            match = ours.fullmatch(unquote(token))
            # An older release's names no register: another job may have the same mark.
            if match is None or (match[2] != digest and name != self.state.job):
                continue
            made = batch.record(0)
            if made is None or shown.mark not in {one.mark for one in made.shown}:
                return unquote(name), match[0], True
            used.append(int(match[1]))
        token = f"repair-{max(used) + 1}-{epoch}-{digest}{named}"
        return unquote(self.state.job), token, False


def _gone(
    state: Registers, job: JobState, lost: Sequence[Lost]
) -> tuple[dict[int, bool | None], set[int]]:
    """Of each recorded epoch whether the sink's target lacks its rows; None: that cannot be told.

    And the epochs of which it may have a part.

    Raises:
        ConfigError: not all of the job's systems are named.
        TargetError: the target does not answer.
    """
    state.check_whole(job)
    past = past_of(job).of([lost[0].shown.sink])
    gone: dict[int, bool | None] = dict.fromkeys((note.epoch for note in past.noted), False)
    partly: set[int] = set()
    # Each epoch apart: where others write, a start compares the newest only.
    for look in state.committer(job).look_back(replace(past, apart=True)):
        gone |= dict.fromkeys(look.untold, None) | dict.fromkeys(look.gone, True)
        partly.update(look.partly)
    return gone, partly


def _check_gone(job: JobState, lost: Sequence[Lost], gone: Mapping[int, bool | None]) -> None:
    """Raise ProtocolError for an epoch whose rows are there."""
    # In a topic, what a repair run has begun to write may stand for later epochs that are gone.
    begun = min((entry.recent.epoch for entry in lost if entry.begun), default=None)
    there = [
        entry.recent.epoch
        for entry in lost
        if gone.get(entry.recent.epoch) is False and (begun is None or entry.recent.epoch < begun)
    ]
    if there:
        raise ProtocolError(
            f"The target has the rows of epoch {spans(there)}: to write them again would double them.",
            job=job.job,
            epoch=there[0],
            remedy="name those that the job's start names. If it names none, nothing is to be "
            "repaired: somebody else has done it.",
        )


def _check_whole(job: JobState, lost: Sequence[Lost], partly: Collection[int]) -> None:
    """Raise ProtocolError for an epoch of which a part may be there, unless its repair was begun."""
    named = [one.recent.epoch for one in lost if one.recent.epoch in partly and not one.begun]
    if named:
        raise ProtocolError(
            f"The target may have a part of the rows of epoch {spans(named)}: to write all of them "
            "again would double that part.",
            job=job.job,
            epoch=named[0],
            remedy="if the sink writes by key (write=upsert or changes), add --keyed: what is there is "
            "replaced. Else these rows cannot be written again by epochs: start the job with the "
            "option adopt and the token that its start names; `abs audit` then names each row that is "
            "missing.",
        )


def _check_all_named(job: JobState, lost: Sequence[Lost], gone: Mapping[int, bool | None]) -> None:
    """Raise ProtocolError if more is gone: a start would compare later epochs, and not tell it."""
    named = {entry.recent.epoch for entry in lost}
    if more := sorted(epoch for epoch, is_gone in gone.items() if is_gone and epoch not in named):
        raise ProtocolError(
            f"The target lacks the rows of epoch {spans(more)}, too. Nothing is recorded.",
            job=job.job,
            epoch=more[0],
            remedy=f"write them again, too, and name all: {spans(sorted(named.union(more)))}.",
        )


def _with_input(state: JobState, lost: Lost, checkpoint: str) -> Lost:
    from abs_core.rowdigest import is_row_digest
    from abs_spark.checkpoint.spark_files import fingerprint, offsets

    epoch, committed = lost.recent.epoch, lost.recent.fingerprint
    current = fingerprint(checkpoint, epoch)
    if current is None or (
        committed is not None and not is_row_digest(committed) and current != committed
    ):
        raise ReplayMismatchError(
            f"The checkpoint has not the input with which epoch {epoch} was committed.",
            job=state.job,
            epoch=epoch,
            remedy="name the checkpoint that the job runs on; Spark keeps the offsets of the last 100 "
            "epochs.",
        )
    return replace(lost, start=offsets(checkpoint, epoch - 1), end=offsets(checkpoint, epoch))


def _show(lost: list[Lost], *, as_json: bool) -> None:
    if as_json:
        print_json([entry.document() for entry in lost])
        return
    table = Table("epoch", "rows", "job=", "epoch=", "input from", "to", box=None)
    for entry in lost:
        ends = ("\n".join(map(json.dumps, offsets)) for offsets in (entry.start, entry.end))
        write = entry.job, entry.token
        cells = str(entry.recent.epoch), str(entry.shown.rows), *write, *ends
        table.add_row(*map(escape, cells))
    people.print(table)


def _record(register: Inventory, stored: Stored, again: Mapping[int, tuple[Shown, ...]]) -> None:
    """Record what the targets show of epochs that are written again.

    Raises:
        ContentionError: somebody else changes the register.
    """
    from abs_core.contracts import Conflict

    state = stored.state
    recent = tuple(
        replace(record, shown=again.get(record.epoch, record.shown)) for record in state.recent
    )
    repaired = replace(state, recent=recent)
    if isinstance(register.compare_and_set(state.job, stored.version, repaired), Conflict):
        raise ContentionError(
            "The job's register has changed in the meantime: the job is running, or somebody else has "
            "repaired it. Nothing is recorded.",
            job=state.job,
            remedy="stop the job, then run the command again.",
        )


def _again(state: JobState, lost: Lost, there: Inventory) -> tuple[Shown, ...]:
    """What is recorded of the epoch from now on: what the target shows of its second writing."""
    from abs_core.rowdigest import is_row_digest, read_row_digest

    epoch, number = lost.recent.epoch, lost.shown.sink
    stored = there.load(job_key(lost.job, lost.token))
    batch = None if stored is None or stored.state.open else stored.state.record(0)
    if batch is None or batch.rows != lost.shown.rows:
        fate = "is not written again" if batch is None else f"was written with {batch.rows} rows"
        raise ProtocolError(
            f"Epoch {epoch}, which had {lost.shown.rows} rows there, {fate} under the token "
            f"{lost.token}. Nothing is recorded.",
            job=state.job,
            epoch=epoch,
            remedy=f"write exactly its rows by a batch write with job={lost.job} and that token; rows "
            "that were written besides must be removed from the target.",
        )
    committed, made = lost.recent.fingerprint, batch.fingerprint
    if committed and made and is_row_digest(committed) and is_row_digest(made) and not state.sinks:
        differs = read_row_digest(made).differs_from(read_row_digest(committed))
        if differs is not None:
            raise ReplayMismatchError(
                f"Epoch {epoch} was written again with other rows: {differs}.",
                job=state.job,
                epoch=epoch,
                remedy="remove them from the target, and let the job go on without this epoch by the "
                "consent that its start asks for.",
            )
    others = tuple(mark for mark in lost.recent.shown if mark.sink != number)
    return (*others, *(replace(mark, sink=number) for mark in batch.shown))
