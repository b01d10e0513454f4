"""A task looks whether its executor gets to the target before it takes a row, by both ways in."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from abs_clients.kafka.cluster import close_clusters
from abs_clients.s3.client import close_idle
from abs_core.errors import RefusedError, TargetError, UnavailableError
from abs_services import PostgresService
from abs_spark.foreach import tasks as by_epoch
from abs_spark.formats import kafka, postgres, s3
from abs_spark.target import Format, Target
from tests.spark.epoch_world import EpochWorld
from tests.spark.test_spark_task import ROWS, SCHEMA, Options, Take, begun, both, sinks_state

PROTOCOLS = ("2pc", "wal", "idempotent")
KINDS = ("postgres", "kafka", "s3")


@pytest.fixture
def nowhere() -> Iterator[str]:
    """Host and port where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        yield f"127.0.0.1:{held.getsockname()[1]}"
