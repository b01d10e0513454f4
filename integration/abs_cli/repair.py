"""``abs register repair``: epochs that are gone in one target are written to it again."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from abs_cli.output import AsJson, people, print_json, report
from abs_cli.sites import Job, Registers, Schema, Sinks, Url
from abs_cli.trail import noted
from abs_core.errors import (
    ConfigError,
    ContentionError,
    OptionError,
    ProtocolError,
    ReplayMismatchError,
)
from abs_core.model import JobState, Recent, Shown, job_key

if TYPE_CHECKING:
    from abs_core.contracts import Inventory, Stored


@dataclass(frozen=True, slots=True)
class Lost:
    """An epoch that is to be written to one target again.

    Args:
        token: for the option ``epoch`` of the batch write.
        start, end: the offsets of its input in the checkpoint, one for each source; empty: unknown.
    """

    recent: Recent
    shown: Shown
    token: str
    start: tuple[Any, ...] = ()
    end: tuple[Any, ...] = ()

    def document(self) -> dict[str, Any]:
        head = {"epoch": self.recent.epoch, "rows": self.shown.rows, "token": self.token}
        return {**head, "from": list(self.start), "to": list(self.end)}


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
    as_json: AsJson = False,
) -> None:
    """Write epochs to one target again, which no longer has their rows. Stop the job first.

    For each epoch it shows its rows, the offsets of its input in the checkpoint, and a token: read that
    input again, and write it by a batch write to that sink alone, with the same job and the token as
    the option epoch. Then run it with --done: it compares what was written, and lets the job start.
    """
    state = Registers.at(url, stateschema, sinks)
    stored = state.stored(job)
    if sink is not None and sink not in state.sinks:
        raise ConfigError(
            f"The file names no sink {sink!r}.",
            remedy=f"use {', '.join(state.sinks) or '--sinks'}.",
        )
    lost = [_lost(stored.state, epoch, sink, checkpoint) for epoch in _numbers(epochs)]
    if not finish:
        _show(lost, as_json=as_json)
        return
    there = state.register if sink is None else state.sinks[sink].register
    with noted("repair", job, state.url, epochs=epochs):
        _finish(state.register, stored, lost, there)
    rows = sum(entry.shown.rows for entry in lost)
    text = (
        f"[green]repaired[/] {escape(job)}: {len(lost)} epoch(s) with {rows} rows are there again"
    )
    report(text, as_json=as_json, did="repaired", job=job, rows=rows)


def _numbers(text: str) -> list[int]:
    """The epochs of ``4 to 7, 9``."""
    numbers: list[int] = []
    try:
        for span in text.split(","):
            first, _, last = span.partition(" to ")
            numbers += range(int(first), int(last or first) + 1)
    except ValueError as error:
        raise OptionError(
            f"These are no epochs: {text[:100]!r}.",
            remedy="write them as the error does: 4 to 7, 9.",
        ) from error
    return numbers


def _lost(state: JobState, epoch: int, sink: str | None, checkpoint: str | None) -> Lost:
    """What the register and the checkpoint tell of an epoch.

    Raises:
        ProtocolError: the register does not tell how many rows it had there.
        ReplayMismatchError: the checkpoint holds another input.
    """
    number = next((s.number for s in state.sinks if s.name == sink), 0)
    recent = state.record(epoch)
    shown = next((s for s in recent.shown if s.sink == number), None) if recent else None
    if recent is None or shown is None:
        raise ProtocolError(
            f"The register does not record what epoch {epoch} wrote there: it is too old, had no rows "
            "there, or is repaired.",
            job=state.job,
            epoch=epoch,
            remedy="name those that the error names; what is gone of older epochs is lost to a repair "
            "run: compare with `abs audit`.",
        )
    named = f"-{sink}" if sink else ""
    # With the mark, which a repair run renews: what is gone once more is written under another token.
    mark = blake2b(shown.mark.encode(), digest_size=4).hexdigest()
    lost = Lost(recent, shown, f"repair-{state.generation}-{epoch}-{mark}{named}")
    return lost if checkpoint is None else _with_input(state, lost, checkpoint)


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
    table = Table("epoch", "rows", "epoch=", "input from", "to", box=None)
    for entry in lost:
        ends = ("\n".join(map(json.dumps, offsets)) for offsets in (entry.start, entry.end))
        cells = str(entry.recent.epoch), str(entry.shown.rows), entry.token, *ends
        table.add_row(*map(escape, cells))
    people.print(table)


def _finish(register: Inventory, stored: Stored, lost: list[Lost], there: Inventory) -> None:
    """Record that they are written again.

    Raises:
        ProtocolError: one is not, or with other rows; nothing is recorded.
        ContentionError: the job is running.
    """
    from abs_core.contracts import Conflict

    state = stored.state
    by_epoch = {entry.recent.epoch: _again(state, entry, there) for entry in lost}
    recent = tuple(
        replace(record, shown=by_epoch[record.epoch]) if record.epoch in by_epoch else record
        for record in state.recent
    )
    repaired = replace(state, recent=recent)
    if isinstance(register.compare_and_set(state.job, stored.version, repaired), Conflict):
        raise ContentionError(
            "The job's register has changed in the meantime: the job is running.",
            job=state.job,
            remedy="stop the job, then run the command again.",
        )


def _again(state: JobState, lost: Lost, there: Inventory) -> tuple[Shown, ...]:
    """What is recorded of the epoch from now on: what the target shows of its second writing."""
    from abs_core.rowdigest import is_row_digest, read_row_digest

    epoch, number = lost.recent.epoch, lost.shown.sink
    stored = there.load(job_key(state.job, lost.token))
    batch = None if stored is None or stored.state.open else stored.state.record(0)
    if batch is None or batch.rows != lost.shown.rows:
        fate = "is not written again" if batch is None else f"was written with {batch.rows} rows"
        raise ProtocolError(
            f"Epoch {epoch}, which had {lost.shown.rows} rows there, {fate} under the token "
            f"{lost.token}. Nothing is recorded.",
            job=state.job,
            epoch=epoch,
            remedy="write exactly its rows by a batch write with that token; rows that were written "
            "besides must be removed from the target.",
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
