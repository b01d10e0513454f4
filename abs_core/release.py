"""The number of the release of abs-sinks that runs.

A constant, not the metadata of the installed distribution: a job by ``--py-files`` has none.
"""

RELEASE = "0.2.0.dev0"
