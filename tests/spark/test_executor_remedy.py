"""A task that has one attempt is told how to get more; no Spark runs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark import TaskContext

from abs_core.errors import AbsError, RefusedError, UnavailableError
from abs_spark.process import executor


@pytest.mark.parametrize(
    ("error", "attempt", "told"),
    [
        (UnavailableError("Gone.", remedy="wait."), 0, True),
        (UnavailableError("Gone.", remedy="wait."), 1, False),
        (RefusedError("No.", remedy="wait."), 0, False),
    ],
)
def test_a_first_attempt_that_lost_its_server_names_the_master_that_gives_four(
    monkeypatch: pytest.MonkeyPatch, error: AbsError, attempt: int, told: bool
) -> None:
    context = SimpleNamespace(attemptNumber=lambda: attempt)
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    with pytest.raises(type(error)) as raised, executor.on_executor():
        raise error
    assert ("local[n,4]" in raised.value.remedy) == told
    assert raised.value.remedy.startswith("wait.")
