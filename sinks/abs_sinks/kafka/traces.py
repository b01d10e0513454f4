"""Finds and removes what a job has left in a cluster besides its records and its register."""

from __future__ import annotations

from abs_clients.kafka.attempts import side_topic
from abs_clients.kafka.topics import topic_facts
from abs_clients.kafka.transactions import describe, listed
from abs_core.model import JobState
from abs_sinks.kafka.open_transaction import parse_id, pattern_of
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register.session import register_id
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.rehearsal import rehearsal_key
from abs_sinks.kafka.wal import ledger_key, store_of


def remove_traces(options: KafkaOptions, state: JobState) -> list[str]:
    """Remove the ledger of a job that has ended.

    Returns:
        What was removed, and what is kept, for people.

    Raises:
        ContentionError: the job is running.
        TargetError: the brokers do not answer.
    """
    lines = _ledger(options, state.job)
    if ids := _ids(options, state.job):
        lines.append(
            f"kept {len(ids)} transactional ids, such as {ids[0]}: Kafka has no request that deletes "
            "them. Brokers forget them transactional.id.expiration.ms after their last use (7 days)"
        )
    topic = options.topic or state.target.rpartition("/")[2]
    for name in filter(None, (topic, options.letters)):
        side = side_topic(name)
        if side in topic_facts(options.kafka, [side], again=True):
            lines.append(f"kept {side}: readers of {name} need it for as long as its records")
    if options.letters is not None:
        lines.append(f"kept the dead letters in the topic {options.letters}")
    return lines


def _ledger(options: KafkaOptions, job: str) -> list[str]:
    """Remove it, where no segment is left that a stalled process would send again without it."""
    register, key = KafkaRegister(options), ledger_key(job)
    if register.load_text(key) is None:
        return []
    if options.wal is None:
        return [f"kept the ledger {key}: name the sink's option wal in the file of --sinks"]
    if left := store_of(options).list(job):
        return [f"kept the ledger {key}: {len(left)} segments of the job are in {options.wal}"]
    register.delete_text(key)
    return [f"deleted the ledger {key}"]


def _ids(options: KafkaOptions, job: str) -> list[str]:
    """The transactional ids of its tasks and of its cells."""
    of_tasks = map(parse_id, listed(options.kafka, pattern=pattern_of(job)))
    keys = job, ledger_key(job), rehearsal_key(job)
    of_cells = describe(options.kafka, [register_id(options.registertopic, key) for key in keys])
    there = [name for name, seen in of_cells.items() if seen is not None]
    return sorted([*there, *(str(name) for name in of_tasks if name and name.job == job)])
