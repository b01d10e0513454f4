"""Shared clients per system: options, settings, errors, connections, transactions."""
