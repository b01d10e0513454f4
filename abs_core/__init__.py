"""Asynchronous Barrier Snapshotting with exactly-once commit: the engine-neutral core.

``protocol`` holds the rules as pure functions, ``coordinator`` applies them to a register and a sink's
committer, and ``contracts`` and ``source`` define the interfaces. Nothing here imports a target's
client or an engine.

The public API is the modules in ``__all__``; import names from them.

- To write a sink: ``contracts``, ``model``, ``errors``; ``routing`` for a sink with several protocols;
  ``wal`` for a sink with a write-ahead log; ``aborting``, ``codec``, ``crash`` and ``registers``
  as in docs/how-to/write-a-sink.md. To test it: the package ``abs_testing``.
- To write a source: ``source``.
- To write an engine: ``coordinator``, ``protocol``, ``events``, ``patience``; ``barriers`` for one with
  barriers in channels, as the package ``abs_embedded``, which runs a job in one process.

The other modules are internal to this project, and those that begin with ``_`` to the core.
"""

# Not imported here: a program that uses only the errors need not load Arrow.
__all__ = [
    "aborting",
    "barriers",
    "codec",
    "contracts",
    "coordinator",
    "crash",
    "errors",
    "events",
    "lookback",
    "model",
    "patience",
    "protocol",
    "registers",
    "routing",
    "source",
    "wal",
]
