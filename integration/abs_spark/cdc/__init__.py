"""Debezium's change events: how their values are sent, and as what they are read."""
