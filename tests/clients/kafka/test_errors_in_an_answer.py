"""Kafka answers a request of many by one answer with a code for each: each code is read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import errors

from abs_clients.kafka import transactions
from abs_clients.kafka.transactions import _described
from abs_sinks.kafka.columnar.outbox import Batch
from abs_sinks.kafka.columnar.transport import NO_ANSWER, _answers

LOADING, NOT_LEADER = 14, 6


def described(monkeypatch: pytest.MonkeyPatch, codes: Sequence[int]) -> dict[str, Any]:
    """What is said of as many ids, whose coordinator answers by these codes."""
    ids = [f"id{number}" for number in range(len(codes))]

    async def coordinators(_: object, asked: Sequence[str]) -> dict[str, int]:
        return dict.fromkeys(asked, 1)

    class Manager:
        async def send(self, _: object, node_id: int) -> object:
            states = [
                SimpleNamespace(transactional_id=each, error_code=code)
                for each, code in zip(ids, codes, strict=True)
            ]
            return SimpleNamespace(transaction_states=states)

    monkeypatch.setattr(transactions, "coordinators_of", coordinators)
    monkeypatch.setattr(transactions, "_description", lambda each: each.transactional_id)
    return asyncio.run(_described(Manager(), ids))


@pytest.mark.parametrize("position", range(3))
def test_a_transaction_that_is_not_described_is_an_error_wherever_it_stands(
    position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = [0, 0, 0]
    assert described(monkeypatch, codes) == {f"id{n}": f"id{n}" for n in range(3)}
    codes[position] = LOADING
    with pytest.raises(errors.KafkaError):
        described(monkeypatch, codes)
    codes[position] = errors.TransactionalIdNotFoundError.errno
    assert described(monkeypatch, codes)[f"id{position}"] is None


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
