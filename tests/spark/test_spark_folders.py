"""Spark still answers as ``spark_folders.json`` says, which the tests of abs-files and abs-s3 go by."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession

from tests.sources.files.spark_folders import ANSWERS, ask


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_spark_reads_and_names_folders_as_it_did(spark: SparkSession) -> None:
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    try:
        found = json.loads(json.dumps(ask(spark)))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert found == json.loads(ANSWERS.read_text())
