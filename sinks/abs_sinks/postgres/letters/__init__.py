"""Rows that become dead letters: refused by the client, by a COPY, or when staged rows are applied."""
