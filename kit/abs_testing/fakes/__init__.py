"""Sinks without a server, in one SQLite database, that keep the same contract as the real ones.

The target can be looked into, survives SIGKILL where it is a file, and has real transactions: so the
same checks that prove a real sink prove the fakes, and the core is proven on the fakes. Protocols:
``2pc`` (append), ``wal`` (append, upsert; co-commits with its own register), ``idempotent`` (upsert).
"""

from abs_testing.fakes.sink import FakeSink
from abs_testing.fakes.target import FakeTarget

__all__ = ["FakeSink", "FakeTarget"]
