"""Services that outlive the command that started them: ``abs up|down|status``.

Another shell finds and ends them by one JSON file in the cache folder, mode 0600 (it holds
credentials), changed under a file lock and replaced whole. Processes are named by pid and start time,
so a reused pid is never mistaken.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from abs_core.durable import replace_durably
from abs_core.errors import ConfigError
from abs_core.strictjson import fields, parse, version
from abs_services.contracts import REGISTRY, Kind, Outage, Provider, Running
from abs_services.paths import cache_folder
from abs_services.processes import ProcessId
from abs_services.providers import services

_VERSION = 1


State = dict[Kind, Running]


@contextmanager
def changing_state() -> Iterator[State]:
    """The recorded state under its lock; saved if the block ends without an exception."""
    folder = cache_folder()
    with (folder / "state.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = read_state()
        yield state
        services = {kind: _to_json(running) for kind, running in state.items()}
        content = json.dumps({"version": _VERSION, "services": services}, indent=1)
        replace_durably(folder / "state.json", content.encode())


def read_state() -> State:
    """The recorded state; empty if there is none. ConfigError if it is unreadable."""
    path = cache_folder() / "state.json"
    try:
        content = fields(parse(path.read_bytes()))
        version(content["version"], _VERSION)
        services = fields(content["services"])
        return {cast(Kind, kind): _from_json(kind, value) for kind, value in services.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} is not a state file that this version reads: {error}.",
            remedy="end what it names by hand, then delete it.",
        ) from error


def _to_json(running: Running) -> dict[str, Any]:
    return {
        "way": str(running.provider),
        "env": dict(running.env),
        "process": asdict(running.process) if running.process else None,
        "container": running.container,
        "folder": str(running.folder) if running.folder else None,
    }


def _from_json(kind: str, value: Mapping[str, Any]) -> Running:
    process, folder = value["process"], value["folder"]
    return Running(
        kind=cast(Kind, kind),
        provider=Provider(value["way"]),
        env=dict(value["env"]),
        process=ProcessId(**process) if process else None,
        container=value["container"],
        folder=Path(folder) if folder else None,
    )


@dataclass(frozen=True)
class Status:
    """A service, whether it is up, and whether it was started by this very call."""

    running: Running
    is_up: bool
    started_now: bool = False


def bring_up(kind: Kind, provider: Provider) -> Status:
    """Start a service that outlives this process.

    A running one is left as it is, whatever its provider. A native service comes back with its data
    at the same address. If killed half way, this leaves nothing running: a service is detached only
    once the state names it. External ones are only checked, and not recorded. The registry is a native
    process with every provider.
    """
    provider = Provider.NATIVE if kind == REGISTRY else provider
    with changing_state() as state:
        earlier = state.get(kind)
        if earlier is not None and services(earlier.provider).is_up(earlier):
            return Status(earlier, is_up=True)
        service = services(provider, lasting=True).of(kind)
        service.start()
        if not service.controllable:
            return Status(service.running, is_up=True)
        state[kind] = service.running
        running = service.running
    service.detach()
    return Status(running, is_up=True, started_now=True)


def take_down(kinds: Sequence[Kind], *, delete_data: bool = False) -> Iterator[Status]:
    """End the services of these kinds that ``bring_up`` started; yields how each was found.

    A process is ended only if pid and start time are the recorded ones.
    """
    for kind in kinds:
        with changing_state() as state:
            running = state.get(kind)
            if running is not None:
                was_up = services(running.provider).is_up(running)
                services(running.provider).end(running)
                del state[kind]
            if delete_data:
                services(running.provider if running else Provider.NATIVE).delete_data(kind)
        if running is not None:
            yield Status(running, is_up=was_up)


def running_ones(kinds: Sequence[Kind]) -> list[Running]:
    """The services of these kinds; ConfigError if one of them is not up."""
    state = read_state()
    for kind in kinds:
        running = state.get(kind)
        if running is None or not services(running.provider).is_up(running):
            raise ConfigError(
                f"No {kind} of `abs up` runs, and no other server is touched.",
                remedy=f"run `abs up {kind}`, and let the job write there.",
            )
    return [state[kind] for kind in kinds]


@contextmanager
def away(kind: Kind, how: Outage) -> Iterator[None]:
    """A service that ``bring_up`` started goes away inside the block; it serves again after it.

    Raises ConfigError if it does not run.
    """
    (running,) = running_ones([kind])
    try:
        with services(running.provider).outage(running, how):
            yield
    finally:
        bring_up(kind, running.provider)


def statuses() -> list[Status]:
    """The recorded services, and whether each is still up."""
    return [
        Status(running, is_up=services(running.provider).is_up(running))
        for running in read_state().values()
    ]
