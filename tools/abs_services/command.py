"""``abs up``, ``abs down``, ``abs status``: local servers for development."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from abs_cli.output import FAILED, AsJson, errors, people, print_json
from abs_core.errors import ConfigError

if TYPE_CHECKING:
    from abs_services.contracts import Kind, Running
    from abs_services.lasting import Status

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[postgres] [kafka] [s3] [registry]",
        help="Which services; default: the first three to start, all to stop and to show.",
    ),
]


def up(names: Names = None, *, as_json: AsJson = False) -> None:
    """Start real servers that keep running, and print how to reach them.

    Servers that already run are not restarted. ABS_SERVICES says how to start them: native (default),
    docker, or external (only checks those that ABS_POSTGRES_URL, ABS_KAFKA_BOOTSTRAP and
    ABS_S3_ENDPOINT name). The output contains passwords. `registry` is a stand-in for a schema
    registry, to try things: it checks no compatibility and knows no login.
    """
    from abs_services import KINDS, chosen_provider
    from abs_services.lasting import bring_up

    provider = chosen_provider()
    brought = []
    for kind in kinds_named(names or KINDS):
        with errors.status(f"starting {kind} ({provider}) ..."):
            brought.append(bring_up(kind, provider))
    if as_json:
        print_json(
            {
                b.running.kind: {**_document(b.running), "env": dict(b.running.env)}
                | {"started_now": b.started_now}
                for b in brought
            }
        )
        return
    for one in brought:
        verb = "started" if one.started_now else "already running:"
        errors.print(f"[green]{verb}[/] {one.running.kind} ({one.running.provider})")
    # To stdout, alone: so that `eval "$(abs up)"` works.
    for one in brought:
        for name, value in one.running.env.items():
            print(f"export {name}={shlex.quote(value)}")


def down(
    names: Names = None,
    *,
    delete_data: Annotated[
        bool, typer.Option("--delete-data", help="Also delete the data of native servers.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Stop the servers that `abs up` started. Native data is kept; data of containers is deleted."""
    from abs_services.lasting import take_down

    ended = list(take_down(kinds_named(names), delete_data=delete_data))
    if as_json:
        print_json({s.running.kind: {"was_up": s.is_up} for s in ended})
        return
    for status_ in ended:
        state = "stopped" if status_.is_up else "was already stopped:"
        errors.print(f"[green]{state}[/] {status_.running.kind} ({status_.running.provider})")
    if not ended:
        errors.print("no server was running")


def status(names: Names = None, *, as_json: AsJson = False) -> None:
    """Show the servers that `abs up` started. Exit code 1 unless all of them (or all named) run."""
    from abs_services.lasting import statuses

    kinds = kinds_named(names)
    by_kind = {s.running.kind: s for s in statuses() if s.running.kind in kinds}
    asked: Sequence[Kind] = kinds if names else list(by_kind)
    if as_json:
        print_json({k: _status_document(by_kind.get(k)) for k in kinds})
    else:
        people.print(_table(by_kind, kinds))
    if not asked or not all(k in by_kind and by_kind[k].is_up for k in asked):
        raise typer.Exit(FAILED)


def kinds_named(names: Sequence[str] | None) -> list[Kind]:
    """The services of these names; all of them where there is none. Raises ConfigError."""
    from abs_services import KINDS, REGISTRY

    kinds: tuple[Kind, ...] = (*KINDS, REGISTRY)
    for name in names or ():
        if name not in kinds:
            raise ConfigError(
                f"There is no service {name!r}.", remedy=f"choose from {', '.join(kinds)}."
            )
    return [kind for kind in kinds if not names or kind in names]


def _table(by_kind: Mapping[Kind, Status], kinds: Sequence[Kind]) -> Table:
    table = Table("service", "way", "state", "process", box=None)
    table.add_column("address", overflow="fold")
    for kind in kinds:
        entry = by_kind.get(kind)
        if entry is None:
            table.add_row(kind, "", "[dim]not started[/]", "", "")
            continue
        state = "[green]up[/]" if entry.is_up else "[red]down[/]"
        address = _address(entry.running.env)
        table.add_row(kind, entry.running.provider, state, _where(entry.running), address)
    return table


def _where(running: Running) -> str:
    if running.process is not None:
        return f"pid {running.process.pid}"
    return f"container {running.container[:12]}" if running.container else ""


def _status_document(entry: Status | None) -> dict[str, Any]:
    if entry is None:
        return {"state": "not started"}
    document = _document(entry.running) | {"address": _address(entry.running.env)}
    return document | {"state": "up" if entry.is_up else "down"}


def _document(running: Running) -> dict[str, Any]:
    return {
        "way": str(running.provider),
        "pid": running.process.pid if running.process else None,
        "container": running.container,
        "folder": str(running.folder) if running.folder else None,
    }


def _address(env: Mapping[str, str]) -> str:
    """The service's address without credentials: the first variable, for every provider."""
    from abs_sinks.door import shown

    value = next(iter(env.values()), "")
    return shown(value) if "://" in value else value
