"""Services that outlive the command that started them: ``abs up|down|status``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from abs_services.contracts import Kind, Provider, Running
from abs_services.providers import services
from abs_services.state import changing_state, read_state


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
    once the state names it. External ones are only checked, and not recorded.
    """
    with changing_state() as state:
        found = state.get(kind)
        if found is not None and services(found.provider).is_up(found):
            return Status(found, is_up=True)
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
            found = state.get(kind)
            if found is not None:
                was_up = services(found.provider).is_up(found)
                services(found.provider).end(found)
                del state[kind]
            if delete_data:
                services(found.provider if found else Provider.NATIVE).delete_data(kind)
        if found is not None:
            yield Status(found, is_up=was_up)


def statuses() -> list[Status]:
    """The recorded services, and whether each is still up."""
    return [
        Status(running, is_up=services(running.provider).is_up(running))
        for running in read_state().values()
    ]
