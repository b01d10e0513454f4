"""Asynchronous Barrier Snapshotting with exactly-once commit: the engine-neutral core.

``protocol`` holds the rules as pure functions, ``coordinator`` drives them against a register and a
sink's committer, ``contracts`` says what a sink, a register and a source must offer. Nothing here
imports a target's client or an engine.

The public API is the modules in ``__all__``; import names from them. (They are not imported here: a
program that only wants the errors does not wait for Arrow.)

- To write a sink: ``contracts``, ``model``, ``errors``; ``routing`` for a sink with several protocols;
  ``wal`` for one that logs; ``aborting``, ``codec``, ``crash``, ``inventory`` and ``formats`` as in
  docs/how-to/write-a-sink.md. To prove it: ``testing``.
- To write a source: ``source``.
- To run a job in one process: ``runtime``, with ``state`` and ``registers``; ``fakes`` are sinks for
  trying it without a server.
- To write an engine: ``coordinator``, ``protocol``, ``events``, ``patience``.

The other modules serve the packages of this project, and may change; those that begin with ``_`` serve
the core alone.
"""

__all__ = [
    "aborting",
    "codec",
    "contracts",
    "coordinator",
    "crash",
    "errors",
    "events",
    "fakes",
    "formats",
    "inventory",
    "model",
    "patience",
    "protocol",
    "registers",
    "routing",
    "runtime",
    "source",
    "state",
    "testing",
    "wal",
]
