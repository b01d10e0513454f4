"""``abs wal``: lists and verifies the segments of a write-ahead log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from abs_cli.output import FAILED, AsJson, errors, handle_of, people, print_json
from abs_core.errors import ConfigError, CorruptionError, NotPreparedError

if TYPE_CHECKING:  # Arrow takes long to import; `abs --help` shall not wait for it
    from abs_core.wal import Entry, SegmentStore

app = typer.Typer(help="Segments that tasks wrote to a write-ahead log.", no_args_is_help=True)

Wal = Annotated[str, typer.Argument(help="The log, as in the sink's option wal.")]
OfJob = Annotated[str | None, typer.Option("--job", help="Only segments of this job.")]


@app.command()
def ls(url: Wal, job: OfJob = None, *, as_json: AsJson = False) -> None:
    """List the segments, one per line."""
    entries = _store(url).list(job)
    if as_json:
        print_json([_document(entry) for entry in entries])
        return
    table = Table("job", "epoch", "task", "age", "bytes", "", "handle", box=None)
    for entry in entries:
        handle = entry.handle
        age = "" if entry.age_seconds is None else f"{entry.age_seconds:.0f} s"
        said = "" if entry.sealed else "not sealed"
        where = str(handle.epoch), str(handle.partition)
        table.add_row(handle.job, *where, age, f"{entry.size:,}", said, str(handle))
    people.print(table)


@app.command()
def verify(
    url: Wal,
    job: OfJob = None,
    handle: Annotated[str | None, typer.Option("--handle", help="Only this segment.")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Read every sealed segment and compare it with its seal. Exit code 1 if one is damaged."""
    from abs_core.wal import verify as verify_segment

    store = _store(url)
    if handle is None:
        names = [entry.handle for entry in store.list(job) if entry.sealed]
    else:
        names = [handle_of(handle, "abs wal ls")]
    checked = []
    for name in names:
        try:
            seal = verify_segment(store, name)
            checked.append({"handle": str(name), "rows": seal.rows, "damage": None})
        except CorruptionError as error:
            checked.append({"handle": str(name), "rows": None, "damage": error.what})
        except NotPreparedError:
            if handle is not None:
                raise
            # It was committed or swept since the list was made.
    damaged = [check for check in checked if check["damage"]]
    if as_json:
        print_json(checked)
    else:
        for check in damaged:
            errors.print(f"[red]damaged[/] {check['handle']}: {escape(str(check['damage']))}")
        rows = sum(int(str(check["rows"])) for check in checked if not check["damage"])
        people.print(
            f"{len(checked) - len(damaged)} segments with {rows:,} rows are intact, "
            f"{len(damaged)} damaged"
        )
    if damaged:
        raise typer.Exit(FAILED)


def _document(entry: Entry) -> dict[str, object]:
    handle = entry.handle
    return {
        "handle": str(handle),
        "job": handle.job,
        "epoch": handle.epoch,
        "partition": handle.partition,
        "size": entry.size,
        "age_seconds": entry.age_seconds,
        "sealed": entry.sealed,
    }


def _store(url: str) -> SegmentStore:
    """The log's store; a relative path is resolved against the working directory."""
    from abs_core.wal import FolderSegments
    from abs_sinks.wal import segment_store

    typed = "://" not in url and not url.startswith(("file:", "~"))
    store = segment_store(str(Path(url).absolute()) if typed else url)
    if isinstance(store, FolderSegments) and not store.exists():
        raise ConfigError(
            f"There is no folder {store.url}.",
            remedy="name the log as in the sink's option wal; without it, it is abs/wal in the query's "
            "checkpoint.",
        )
    return store
