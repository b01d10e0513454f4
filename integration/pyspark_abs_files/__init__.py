"""Lets Spark find the format ``abs-files``."""
