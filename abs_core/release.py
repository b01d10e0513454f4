"""The release of abs-sinks that runs; the only place where its number stands.

A constant, not the metadata of the installed distribution: a job by ``--py-files`` has none.
"""

RELEASE = "0.2.0.dev0"
