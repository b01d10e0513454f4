"""Kills and stops workers at a register, and loses answers to them; what they note is a history."""

from __future__ import annotations

import os
import random
import secrets
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from abs_chaos.faults import Faults
from abs_core.errors import UnavailableError
from abs_testing.calls import Loss
from abs_testing.case import within
from tests.porcupine import history
from tests.porcupine.history import Call
from tests.porcupine.workers import Forker, opened

WORKERS = 4
JOBS = 2
"""Cells at which the workers of a round call."""
ROUND_S = 5.0
"""Each round has cells of its own: answers that nobody heard multiply what the checker looks at."""
HARM_EVERY_S = (0.02, 0.2)
STOPPED_S = (0.02, 0.3)
MET_S = 2.0
"""So long is waited for the message that is to be lost."""
LOSSES = (Loss.REQUEST, Loss.REPLY, Loss.DELAY)


@dataclass(frozen=True, slots=True)
class Harmed:
    """A history, and what was done to its processes.

    Args:
        counts: kills, pauses, and lost messages by kind.
    """

    calls: list[Call]
    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        unheard = sum(call.end is None for call in self.calls)
        counts = ", ".join(f"{name}: {n}" for name, n in sorted(self.counts.items()))
        return f"{len(self.calls)} calls, without an answer: {unheard}, {counts}"


def harmed(
    address: str,
    folder: Path,
    *,
    seconds: float,
    seed: int,
    relay: Faults | None = None,
    modules: tuple[str, ...] = (),
) -> Harmed:
    """Let processes call a register, and harm them.

    Args:
        address: see ``workers.opened``.
        folder: empty; for what the processes note.
        relay: stands between the workers and the server, and loses messages; without one some
            answers are thrown away.
        modules: what the register needs, loaded once.
    """
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    with Forker(modules) as forker:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            jobs = [f"job-{secrets.token_hex(4)}" for _ in range(JOBS)]
            _round(forker, jobs, address, folder, rng, counts, relay)
            history.last_load(opened(address), jobs, folder)
    return Harmed(history.read(folder), counts)


def _round(
    forker: Forker,
    jobs: list[str],
    address: str,
    folder: Path,
    rng: random.Random,
    counts: Counter[str],
    relay: Faults | None,
) -> None:
    def begin() -> int:
        name = f"p{counts['processes']}"
        counts["processes"] += 1
        return forker.fork(
            address=address,
            jobs=jobs,
            folder=str(folder),
            process=name,
            seed=rng.getrandbits(32),
            loses=relay is None,
        )

    for _ in range(WORKERS):
        begin()
    end = time.monotonic() + ROUND_S
    while time.monotonic() < end:
        time.sleep(rng.uniform(*HARM_EVERY_S))
        harm = rng.choice(["kills", "pauses", *(["losses", "losses"] if relay else [])])
        pid = rng.choice(forker.alive)
        if harm == "kills":
            forker.kill(pid)
            begin()
        elif harm == "pauses":
            with _paused(pid):
                time.sleep(rng.uniform(*STOPPED_S))
        else:
            assert relay is not None
            harm = _lose(relay, rng)
        counts[harm] += 1
    forker.end_all()


@contextmanager
def _paused(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    yield
    os.kill(pid, signal.SIGCONT)


def _lose(relay: Faults, rng: random.Random) -> str:
    """Lose one of the next messages; one that is late arrives after others. Returns what was lost."""
    loss = rng.choice(LOSSES)
    relay.arm(rng.randint(1, 4), loss)
    if not within(MET_S, lambda: relay.fired):
        relay.arm(1, None)
        return "losses that nothing met"
    if loss is Loss.DELAY:
        time.sleep(rng.uniform(*STOPPED_S))
        with suppress(UnavailableError):  # the connection of one that was killed meanwhile
            relay.release(5.0)
    return f"{loss.name.lower()} lost"
