"""Lets Spark find the format ``abs-kafka``."""
