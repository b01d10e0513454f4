"""One epoch over several sinks: their numbers, their committers as one, and asking them side by side.

``sinkmap`` numbers the sinks, ``composite`` sends each handle to its sink's committer, ``grouping`` is
the contract of sinks that share a transaction, ``together`` asks several systems the same thing,
``sinks`` is how a graph of the embedded runtime names several for one stream.
"""
