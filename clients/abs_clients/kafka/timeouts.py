"""For how long one request to Kafka may take: all limits of the clients, in one table, in seconds.

The option ``patience`` says for how long requests are repeated (``abs_core.patience``); these say how
long each may take, so a wait may last for ``patience`` and one of these. All are far below the default
of ``patience``, so that a broker that is silent is asked again while there is time.
"""

from __future__ import annotations

REQUEST_SECONDS = 15.0
"""An answer of a broker or coordinator."""

CALL_SECONDS = 60.0
"""One call, which may be several requests. kafka-python has no limit for the handshake of TLS, and a
broker that stands still never ends it."""

LATE_SECONDS = 5.0
"""For how much longer than a request may take librdkafka's answer is waited for: it ends one itself."""

ALONE_SECONDS = 10.0
"""After so long without any broker kafka-python's client is made anew: it asks only those that it has
last heard of, never the bootstrap servers again, and those may all have gone meanwhile."""

CHECK_SECONDS = 10.0
"""A broker's first word, from which a refused password or certificate is heard."""

FENCE_SECONDS = 20.0
"""The markers of an abort, when a producer id is taken over."""

UNHEARD_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.5, *[1.0] * 9)
"""Before each further look for a topic that should be there; then it counts as gone. The topic may be
new, or the broker that is asked has just started."""
