"""Lets Spark find the format ``abs-s3``."""
