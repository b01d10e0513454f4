"""Kafka answers a request of many by one answer with a code for each: each code is read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import errors

from abs_clients.kafka.transactions import State, _described
from abs_sinks.kafka.columnar.outbox import Batch
from abs_sinks.kafka.columnar.transport import NO_ANSWER, _answers
from tests.clients.kafka.test_routing import Manager, state_of

LOADING, NOT_LEADER = 14, 6


@dataclass(eq=False)
class Describing(Manager):
    """One broker, which answers for each id by one of these codes."""

    codes: Sequence[int] = ()

    def states(self, node: int | None, asked: Sequence[str]) -> list[SimpleNamespace]:
        pairs = zip(asked, self.codes, strict=True)
        return [state_of(each, error_code=code, producer_id=1) for each, code in pairs]


def described(codes: Sequence[int]) -> dict[str, Any]:
    """What is said of as many ids, whose coordinator answers by these codes: their state."""
    ids = [f"id{number}" for number in range(len(codes))]
    said = asyncio.run(_described(Describing(codes=codes), ids))
    return {name: one and one.state for name, one in said.items()}


@pytest.mark.parametrize("position", range(3))
def test_a_transaction_that_is_not_described_is_an_error_wherever_it_stands(
    position: int,
) -> None:
    codes = [0, 0, 0]
    assert described(codes) == dict.fromkeys(["id0", "id1", "id2"], State.ONGOING)
    codes[position] = LOADING
    with pytest.raises(errors.KafkaError):
        described(codes)
    codes[position] = errors.TransactionalIdNotFoundError.errno
    assert described(codes)[f"id{position}"] is None


@pytest.mark.parametrize("position", range(3))
def test_a_batch_that_is_refused_or_left_out_is_told_wherever_it_stands(position: int) -> None:
    batches = [Batch(number, 0, 1, b"") for number in range(3)]

    def codes(said: Sequence[int], left_out: int | None = None) -> list[int]:
        parts = [
            SimpleNamespace(index=n, error_code=code, error_message=None)
            for n, code in enumerate(said)
            if n != left_out
        ]
        response = SimpleNamespace(responses=[SimpleNamespace(partition_responses=parts)])
        return [answer.code for answer in _answers(batches, response)]

    said = [0, 0, 0]
    assert codes(said) == said
    assert codes(said, position)[position] == NO_ANSWER
    said[position] = NOT_LEADER
    assert codes(said) == said
