"""A producer that encodes records column by column.

outbox     which batch may be sent now, or again, and what an answer means: no I/O
transport  requests of a transaction, and their answers
"""
