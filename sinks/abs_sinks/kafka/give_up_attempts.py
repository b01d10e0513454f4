"""Gives up undecided attempts of a job that will not run again, so that its readers can go on.

Readers by winners wait at records of ``protocol=idempotent`` whose epoch is undecided. On a person's
command this writes a winners record without winners, of a generation above all written ones:

- With the job's register: in the transaction that raises the register's generation. So a live run is
  fenced (I5), and cannot decide what was given up. A later run goes on above that generation.
- With the register retired: by the attempts' names. No run can decide for that register's id, because
  a new register gets a new id.

The record says who wrote it, where and when. A job that changes from ``idempotent`` to another
protocol writes it by itself (``left_behind``).
"""

from __future__ import annotations

import getpass
import logging
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from abs_clients.kafka.attempts import BEGINNING, NO_DECISION, Decided, side_topic
from abs_core.contracts import Conflict, Version
from abs_core.coordinator.cell import RegisterCell
from abs_core.errors import ConfigError, ProtocolError, RefusedError
from abs_core.model import HandleName, JobState
from abs_core.protocol import RunIdentity, Verdict, start
from abs_sinks.kafka.options import KafkaOptions, identity
from abs_sinks.kafka.register.session import Rows
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.sending import outside_transactions
from abs_sinks.kafka.side_topic import (
    data_topic,
    send_winners,
    was_written,
    winners_topic,
    winners_topics,
    write_winners,
)

log = logging.getLogger(__name__)


def give_up(options: KafkaOptions, job: str, orphans: Sequence[HandleName] = ()) -> list[Decided]:
    """Write winners records without winners, and return them.

    Args:
        job: the register key. If its register is here, all its undecided attempts are given up.
        orphans: attempts whose register is gone; each gives up all attempts of its register up to its
            generation.

    Raises:
        ConfigError: there is neither a register nor an orphan, the register is of another topic, or
            an orphan's register is here.
        ProtocolError: an epoch is decided and not finished, under another protocol.
        ContentionError: the job is running.
        TargetError: the brokers do not answer, or refuse.
    """
    data_topic(options)
    stored = KafkaRegister(options).load(job)
    state = None if stored is None else stored.state
    if state is None and not orphans:
        raise ConfigError(
            f"There is no register of a job {job!r} in {options.registertopic}.",
            remedy="name the attempt that readers wait for as an orphan, if its register is gone.",
        )
    for orphan in orphans:
        if orphan.job != job or (state is not None and orphan.register == state.register):
            raise ConfigError(
                f"{orphan} is an attempt of another job, or its register is here.",
                remedy="an attempt whose register is here needs no orphan: name the job alone.",
            )
    done = [] if state is None else [_give_up_job(options, job)]
    return done + [_give_up_orphan(options, orphan) for orphan in _highest(orphans)]


def left_behind(options: KafkaOptions, state: JobState) -> None:
    """Give up attempts of lower generations under ``idempotent``, in a run of another protocol.

    This run's epochs get no winners record, so readers would take the older attempts' epochs for
    decided, and their winners for deleted. It is safe at any time: the register has this run's
    generation, so no lower one can decide (I5). It writes nothing if no job used ``idempotent`` here.

    Args:
        state: of the register in this cluster, with this run's generation.

    Raises:
        TargetError: the brokers do not answer.
    """
    for topic in filter(None, (options.topic, options.letters)):
        try:
            # A job needs no right on a side topic, not even to describe it, if others alone write to
            # it.
            if was_written(options, topic):
                _send_alone(options, side_topic(topic), _nobody(state, "protocol changed"))
        except RefusedError as error:
            log.warning(
                "job %s does not use protocol=idempotent, and may not record this in %s. If an earlier "
                "run of it did, readers with winners=true wait at its undecided records. %s",
                state.job,
                side_topic(topic),
                error,
            )


def _give_up_job(options: KafkaOptions, job: str) -> Decided:
    register = KafkaRegister(options)
    topics = winners_topics(options, job, again=True)
    run = f"given-up-{secrets.token_hex(4)}"
    written: list[Decided] = []

    def swap(expected: Version | None, state: JobState) -> Version | Conflict:
        written.append(_nobody(state))
        rows = Rows(partial(send_winners, topics=topics, decided=written[-1]))
        return register.compare_and_set(job, expected, state, rows=rows)

    RegisterCell(register, job, options.patience).change(
        lambda s: _raised(options, job, run, s), swap
    )
    return written[-1]


def _nobody(state: JobState, act: str = "given up") -> Decided:
    """A winners record without winners, of the state's generation."""
    after = BEGINNING if state.frontier is None else state.frontier
    return Decided(state.register, state.job, state.generation, NO_DECISION, (), trail(act), after)


def _raised(options: KafkaOptions, job: str, run: str, state: JobState | None) -> Verdict:
    if state is None:
        raise ConfigError(
            f"The register of job {job!r} is gone.",
            job=job,
            remedy="look whether the option registertopic names the job's; `abs register list` "
            "shows the jobs that are there.",
        )
    if state.target != identity(options):
        raise ConfigError(
            f"Job {job!r} writes to {state.target}, not to {identity(options)}.",
            job=job,
            remedy="name its topic.",
        )
    if state.open:
        raise ProtocolError(
            "An epoch of the job is decided and not finished.",
            job=job,
            epoch=state.open[0].epoch,
            remedy="finish it first: `abs in-doubt commit`.",
        )
    return start(state, RunIdentity(job, state.lineage, run, state.target), state.register)


def _give_up_orphan(options: KafkaOptions, orphan: HandleName) -> Decided:
    generation = orphan.generation + 1
    none = Decided(orphan.register, orphan.job, generation, NO_DECISION, (), trail())
    _send_alone(options, winners_topic(options, orphan.job, again=True), none)
    return none


def _send_alone(options: KafkaOptions, topic: str, none: Decided) -> None:
    write_winners(outside_transactions(replace(options, topic=topic), []), none)


def _highest(orphans: Sequence[HandleName]) -> list[HandleName]:
    """The orphan of the highest generation, for each register."""
    ascending = sorted(orphans, key=lambda handle: handle.generation)
    return list({orphan.register: orphan for orphan in ascending}.values())


def trail(act: str = "given up") -> str:
    """The user, host and time (UTC) of the act."""
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return f"{act} by {getpass.getuser()} on {socket.gethostname()} at {when}"
