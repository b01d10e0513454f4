"""Lets Spark find the format ``abs-files``: it imports every top-level module ``pyspark_*``."""

from __future__ import annotations

from contextlib import suppress

# Where not even this can be imported, the format is not found; an exception would hide all others.
with suppress(Exception):
    from abs_spark.discovery import default_source

    DefaultSource = default_source("abs-files", "abs_spark.datasource.files:FilesDataSource")
