"""Ends what is open under a transactional id, by taking the id over (InitProducerId).

Never by EndTxn(abort): the producer that holds the id may be alive, would go on in the same epoch, and
part of its records would become visible (seen). InitProducerId fences it first. It does not look which
transaction it ends, so it is for ids whose transaction no decision can name (I4).
"""

from __future__ import annotations

from tenacity import (
    RetryError,
    Retrying,
    retry_if_result,
    stop_after_delay,
    wait_random_exponential,
)

from abs_clients.kafka.settings import Settings
from abs_clients.kafka.transactions import initialise
from abs_core.errors import UnavailableError

FENCE_SECONDS = 20.0
"""For how long the markers of an abort are waited for."""


def fence_for_good(settings: Settings, transactional_id: str) -> tuple[int, int]:
    """Return when the id's producer is fenced and what it had open is aborted.

    Returns:
        producer id and epoch that are the id's from now on.

    Raises:
        TargetError: the coordinator refuses, or does not get done in time.
    """
    trying = Retrying(
        retry=retry_if_result(lambda done: done is None),
        wait=wait_random_exponential(multiplier=0.005, max=0.2),
        stop=stop_after_delay(FENCE_SECONDS),
    )
    try:
        found = trying(
            lambda: initialise(settings, transactional_id, settings.transaction_timeout_ms)
        )
    except RetryError as error:
        raise UnavailableError(
            f"The abort under a transactional id is not done after {FENCE_SECONDS:g} s.",
            handle=transactional_id,
            remedy="see whether the leaders of the topic's partitions are up.",
        ) from error
    assert found is not None
    return found
