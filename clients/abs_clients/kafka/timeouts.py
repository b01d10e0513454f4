"""Time limits of Kafka clients and sink, in seconds.

The option ``patience`` limits how long requests are repeated (``abs_core.patience``); these limit
each one, so a wait may take ``patience`` plus one of these. All are far below the default of
``patience``, so that a silent broker is asked again in time. A wait that nobody needs for longer
than a given time is cut to it (``at_most``).
"""

from __future__ import annotations

from abs_core.patience import Patience


def at_most(seconds: float, patience: Patience) -> Patience:
    """The job's patience, limited to this many seconds."""
    return Patience(min(seconds, patience.seconds), first_pause=0.01)


# One request, and what it takes to be able to ask.

REQUEST_SECONDS = 15.0
"""An answer of a broker or coordinator."""

CALL_SECONDS = 60.0
"""One call, which may be several requests. kafka-python has no limit for the handshake of TLS, and a
broker that stands still never ends it."""

LATE_SECONDS = 5.0
"""How much longer than a request may take to wait for librdkafka's answer: it ends one itself."""

ALONE_SECONDS = 10.0
"""After this time without any broker, make kafka-python's client anew: it asks only the brokers that it
last knew, never the bootstrap servers again, and all of them may be gone."""

CHECK_SECONDS = 10.0
"""How long to wait for a broker's first answer, which shows a refused password or certificate."""

REASON_SECONDS, FIRST_REASON_SECONDS = 0.2, 1.0
"""After "all brokers down": how long to wait for the next reason, and for the first one."""

REASON_AGAIN = 5
"""How many times as long a second look waits for a reason."""

INIT_SECONDS = 60.0
"""How long a coordinator may take to initialise a producer: it may be loading its log, or ending the
last transaction."""

END_SECONDS = 30.0
"""How long to wait for librdkafka's answer to the end of a transaction."""

MARKER_SECONDS = 10.0
"""How long to wait for the markers of a commit, which show it to readers; it is durable before."""

WINNERS_SECONDS = 10.0
"""How long a winners record may take, in the transaction that decides its epoch
(``protocol=idempotent``)."""

FENCE_SECONDS = 20.0
"""How long to wait for the markers of an abort, when a producer id is taken over."""

GIVE_UP_SECONDS = 10.0
"""How long the abort of a failed task may take: most take some ms, and Spark then ends its process."""

# Topics: new ones, and those that hold up a look.

LOOK_SECONDS = 20.0
"""How long a preflight waits for leaders and coordinators that are being elected."""

APPEARS_SECONDS = 15.0
"""How long to wait until the broker that is asked has heard of a new topic."""

UNHEARD_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.5, *[1.0] * 9)
"""Before each further look for a topic that should be there; then it counts as gone. The topic may be
new, or the broker that is asked has just started."""

# The register: safety never rests on these.

OPEN_CELL_SECONDS = 1.0
"""How long a transaction may hold up the read of its cell; then it is ended: its process is dead, or
too slow."""

OPEN_PARTITION_SECONDS = 3.0
"""How long another job's transaction may hold up the read of a partition; then it is ended."""

LEADER_SECONDS = 15.0
"""How long to look for a partition's leader while a former one answers."""

NEW_READER_SECONDS = 3.0
"""The least time for a new consumer, which has to find the leader first."""

TAIL_SECONDS = 3600.0
"""A tail that was not looked at for so long begins anew: tombstones are compacted away after a day."""

CELL_TIMEOUT_MS = 10_000
"""A transaction of nothing but a cell: should its process die, others wait no longer."""

# What is tried again at once, with pauses.

FULL_PAUSE = 0.02
"""How long to wait for room in librdkafka's full queue."""

FIRST_PAUSE, MAX_PAUSE = 0.02, 1.0
"""The pause before a failed batch is sent again; it doubles."""

MISSING_TRIES = 20
"""How often in a row no broker may know the topic, about 15 s: some brokers hear of a new one late."""
