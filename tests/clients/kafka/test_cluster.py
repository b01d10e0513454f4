"""A cluster is one object of a process: what it keeps ends with it, and no child shares it."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator

import pytest

from abs_clients.kafka.cluster import Channel, Cluster, close_clusters, cluster
from abs_clients.kafka.settings import Settings
from abs_core.errors import UnavailableError

SETTINGS = Settings.of({"bootstrap.servers": "127.0.0.1:1", "client.id": "test-cluster"})


@pytest.fixture
def mine() -> Iterator[Cluster]:
    close_clusters(SETTINGS)
    yield cluster(SETTINGS)
    close_clusters(SETTINGS)


class Kept:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_a_process_has_one_cluster_of_an_address_and_settings(mine: Cluster) -> None:
    assert cluster(Settings.of(dict(SETTINGS.pairs))) is mine
    other = SETTINGS.with_(**{"client.id": "another"})
    assert cluster(other) is not mine
    close_clusters(other)


def test_records_and_questions_have_a_connection_each(mine: Cluster) -> None:
    assert mine.connection(Channel.DATA) is not mine.connection(Channel.CONTROL)


def test_what_was_learnt_and_kept_ends_with_the_cluster(mine: Cluster) -> None:
    mine.learn("key", "value")
    kept = mine.kept("mine", Kept)
    assert mine.kept("mine", Kept) is kept
    close_clusters(SETTINGS)
    assert kept.closed == 1
    assert cluster(SETTINGS).learnt("key") is None
    assert cluster(SETTINGS).kept("mine", Kept) is not kept


def test_what_is_dropped_is_closed_and_made_again(mine: Cluster) -> None:
    kept = mine.kept("mine", Kept)
    mine.drop("mine")
    mine.drop("mine")
    assert kept.closed == 1
    assert mine.kept("mine", Kept) is not kept


def test_a_forked_child_has_a_cluster_of_its_own(mine: Cluster) -> None:
    mine.learn("key", "value")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of threads
        child = os.fork()
    if not child:
        fresh = cluster(SETTINGS) is not mine and cluster(SETTINGS).learnt("key") is None
        os._exit(0 if fresh else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert cluster(SETTINGS) is mine


@pytest.mark.parametrize(
    ("set_by_the_user", "then"), [(logging.NOTSET, logging.CRITICAL), (logging.INFO, logging.INFO)]
)
def test_the_client_s_logger_is_quiet_unless_somebody_has_set_its_level(
    mine: Cluster, monkeypatch: pytest.MonkeyPatch, set_by_the_user: int, then: int
) -> None:
    logger = logging.getLogger("kafka")
    before = logger.level
    monkeypatch.setattr("abs_clients.kafka.timeouts.REQUEST_SECONDS", 0.3)
    try:
        logger.setLevel(set_by_the_user)
        with pytest.raises(UnavailableError):
            mine.client()
        assert logger.level == then
    finally:
        logger.setLevel(before)
