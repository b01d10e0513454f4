"""Asynchronous Barrier Snapshotting with exactly-once commit: the engine-neutral core.

``protocol`` holds the rules as pure functions, ``coordinator`` drives them against a register and a
sink's committer, ``contracts`` says what a sink, a register and a source must offer. Nothing here
imports a target's client or an engine.
"""
