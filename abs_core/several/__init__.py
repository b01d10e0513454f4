"""One epoch over several sinks.

``sinkmap`` numbers the sinks, ``composite`` routes each handle to its sink's committer, ``grouping``
is the contract of sinks that share a transaction, ``together`` calls several systems in parallel,
``sinks`` names the sinks of one stream in a graph of the embedded runtime.
"""
