"""Registers in Kafka, for tests: their options, their jobs, and changes of them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace

from abs_core.contracts import Conflict, Stored, Version
from abs_core.errors import UnavailableError
from abs_core.model import JobState
from abs_services import KafkaService
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register.session import Rows
from abs_sinks.kafka.register.store import KafkaRegister

STATE = JobState("0123456789abcdef", "job", "target", "lineage", 1, "run")


class PatientRegister(KafkaRegister):
    """Where it is not known whether a change took effect: looks, as the core's ``Cell`` does."""

    def compare_and_set(
        self,
        job: str,
        expected: Version | None,
        state: JobState,
        deadline: float | None = None,
        *,
        rows: Rows | None = None,
    ) -> Version | Conflict:
        try:
            return super().compare_and_set(job, expected, state, deadline, rows=rows)
        except UnavailableError:
            stored = self.load(job)
            if stored is not None and stored.state == state and stored.version != expected:
                return stored.version
            return Conflict()


def options_of(kafka: KafkaService, more: Mapping[str, str] | None = None) -> KafkaOptions:
    """Options of a register in a topic of its own, which is not there yet."""
    return KafkaOptions.parse(
        {
            "kafka.bootstrap.servers": kafka.bootstrap,
            "topic": "data",
            "registertopic": f"register-{secrets.token_hex(4)}",
            **(more or {}),
        }
    )


def create(options: KafkaOptions, job: str) -> Stored:
    state = replace(STATE, job=job)
    version = KafkaRegister(options).compare_and_set(job, None, state)
    assert not isinstance(version, Conflict)
    return Stored(state, version)


def change(register: KafkaRegister, job: str, times: int, first: int = 0) -> None:
    stored = register.load(job)
    version = None if stored is None else stored.version
    for generation in range(first, first + times):
        changed = register.compare_and_set(
            job, version, replace(STATE, job=job, generation=generation)
        )
        assert not isinstance(changed, Conflict)
        version = changed
