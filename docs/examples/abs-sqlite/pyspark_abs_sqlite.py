"""Lets Spark find the format ``abs-sqlite``: it imports every top-level module ``pyspark_*``."""

from abs_spark.discovery import default_source

DefaultSource = default_source("abs-sqlite")
