"""What a job keeps besides its records: register, log, side topic. Can each be relied on?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from abs_clients.kafka.settings import Settings
from abs_core.errors import AbsError, ConfigError
from abs_core.model import Finding, Severity
from abs_core.wal import FolderSegments
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.preflight_access import judge_access
from abs_sinks.kafka.preflight_replicas import preflight_replicas
from abs_sinks.kafka.register import KafkaRegister
from abs_sinks.kafka.register_topic import find_topic
from abs_sinks.kafka.segments import store_of
from abs_sinks.kafka.side_birth import side_loss
from abs_sinks.kafka.target import identity
from abs_sinks.kafka.winners import data_topic
from abs_sinks.kafka.winners import findings as side_findings

_LOCAL = ("localhost", "127.", "[::1]")


def preflight_state(
    options: KafkaOptions, job: str | None, *, own_register: bool
) -> Iterator[Finding]:
    """Look, and change nothing.

    Args:
        job: the register key; None where it is not known yet.
        own_register: whether the register lies in this cluster.

    Raises:
        TargetError: the brokers cannot be looked at.
    """
    barred = list(judge_access(options, job, own_register=own_register))
    yield from barred
    yield from preflight_replicas(options, own_register=own_register)
    if options.protocol == "wal":
        yield from _log(options, job)
    if barred:
        return  # what it may not look at cannot be judged
    if own_register or options.protocol == "wal":
        yield from _register(options)
    if own_register and job is not None:
        yield from _others(options, job)
    if options.protocol == "idempotent":
        yield from side_findings(options)
        if (lost := side_loss(options, data_topic(options), job)) is not None:
            yield Finding(Severity.ERROR, lost.what, lost.remedy)


def _register(options: KafkaOptions) -> Iterator[Finding]:
    try:
        found = find_topic(options.kafka, options.registertopic)
    except ConfigError as error:
        yield Finding(Severity.ERROR, error.what, error.remedy)
        return
    if found is None:
        what = f"The register's topic {options.registertopic} does not exist; it will be made."
        yield Finding(Severity.NOTE, what)


def _others(options: KafkaOptions, job: str) -> Iterator[Finding]:
    """Where a new job finds another job's target: perhaps it is that one, its checkpoint deleted."""
    register = KafkaRegister(options)
    if options.topic is None or register.load(job) is not None:
        return
    others = register.others_on(identity(options), job)
    if others:
        yield Finding(
            Severity.WARNING,
            f"This job is new, and topic {options.topic} has been written by another one: "
            f"{', '.join(others[:5])}. If that was this job before its checkpoint was deleted, "
            "everything would be written twice.",
            "restore its checkpoint; if it is in place and the job had another name, set that again "
            f"(job={others[0]}); or go on, if the input is new.",
        )


def _log(options: KafkaOptions, job: str | None) -> Iterator[Finding]:
    try:
        store = store_of(options)
        store.list(job)
    except AbsError as error:
        yield Finding(Severity.ERROR, error.what, error.remedy)
        return
    if isinstance(store, FolderSegments) and not _is_local(options.kafka):
        yield Finding(
            Severity.NOTE,
            f"The write-ahead log is a folder ({store.url}): every executor and the driver must see "
            "the same one.",
            "on several machines take a shared file system, or wal=s3://bucket/prefix.",
        )


def _is_local(settings: Settings) -> bool:
    servers: Sequence[str] = settings.bootstrap.split(",")
    return all(server.strip().startswith(_LOCAL) for server in servers)
