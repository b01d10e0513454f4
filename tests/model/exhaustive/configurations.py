"""What is explored by default, and what is too large for that.

Two and three runs may be alive at once; every one of them may be slow, overtaken, or dead anywhere.
"""

from __future__ import annotations

from abs_core.errors import EpochGapError, IdentityError, ReplayMismatchError
from tests.model.exhaustive.configuration import Configuration, RunSpec

ONE = RunSpec()
TWO = RunSpec(partitions=2)
RETRY = RunSpec(retries=1)

DEFAULT = (
    Configuration("two epochs, given up anywhere", (ONE, ONE), epochs=2, aborts=True),
    Configuration("two handles an epoch, two epochs", (TWO, TWO), epochs=2),
    Configuration("two handles an epoch, given up anywhere", (TWO, TWO), aborts=True),
    Configuration("task retries in both runs", (RETRY, RETRY)),
    Configuration(
        "task retries, given up anywhere, and committed all the same",
        (RETRY, ONE),
        aborts=True,
        stubborn=True,
    ),
    Configuration("two sinks, one of them away", (TWO, TWO), aborts=True, away=True),
    Configuration("two sinks, one of them away, two epochs", (TWO, TWO), epochs=2, away=True),
    Configuration("two handles and a task retry", (RunSpec(partitions=2, retries=1), ONE)),
    Configuration("another partitioning on replay", (TWO, ONE), aborts=True),
    Configuration("three runs", (ONE, ONE, ONE)),
    Configuration("two handles, ended anywhere", (TWO, ONE), aborts=True, ends=True),
    Configuration(
        "co-commit, ended anywhere", (ONE, ONE), epochs=2, aborts=True, ends=True, co_commits=True
    ),
    Configuration(
        "co-commit, two epochs, given up anywhere",
        (ONE, ONE),
        epochs=2,
        aborts=True,
        co_commits=True,
    ),
    Configuration(
        "co-commit, two handles, given up anywhere", (TWO, TWO), aborts=True, co_commits=True
    ),
    Configuration(
        "another lineage adopts",
        (RunSpec(content="a", lineage="A"), RunSpec(content="b", lineage="B", adopts=True)),
        epochs=2,
        aborts=True,
        expected=(IdentityError,),
    ),
    Configuration(
        "another lineage adopts, and the first adopts back",
        (
            RunSpec(content="a", lineage="A"),
            RunSpec(content="b", lineage="B", adopts=True),
            RunSpec(content="a again", lineage="A", adopts=True),
        ),
        expected=(IdentityError, ReplayMismatchError),
        recovers=False,  # it may be left refused: that epoch was decided, and nothing tells by what
    ),
    Configuration(
        "an edited checkpoint",
        (ONE, RunSpec(content="edited")),
        aborts=True,
        expected=(ReplayMismatchError,),
        recovers=False,  # the refusal is for a person to resolve
    ),
    Configuration(
        "a checkpoint with a hole",
        (ONE, RunSpec(first=2, after=1)),
        epochs=3,
        expected=(EpochGapError,),
        recovers=False,
    ),
)
"""Under a minute and a half, together, on one core."""

CAMPAIGN = (
    Configuration("two epochs, ended anywhere", (ONE, ONE), epochs=2, aborts=True, ends=True),
    Configuration("task retries, ended anywhere", (RETRY, ONE), aborts=True, ends=True),
    Configuration("three runs, given up anywhere", (ONE, ONE, ONE), aborts=True),
    Configuration("three runs, two epochs", (ONE, ONE, ONE), epochs=2),
    Configuration(
        "two handles an epoch, two epochs, given up anywhere", (TWO, TWO), epochs=2, aborts=True
    ),
    Configuration(
        "two sinks, one of them away, two epochs, given up anywhere",
        (TWO, TWO),
        epochs=2,
        aborts=True,
        away=True,
    ),
    Configuration(
        "two sinks, one of them away, ended anywhere", (TWO, ONE), aborts=True, ends=True, away=True
    ),
    Configuration("task retries in both runs, given up anywhere", (RETRY, RETRY), aborts=True),
    Configuration("two handles and three runs", (TWO, TWO, ONE)),
    Configuration("co-commit, three runs", (ONE, ONE, ONE), epochs=2, co_commits=True),
    Configuration(
        "co-commit, two handles, two epochs, given up anywhere",
        (TWO, TWO),
        epochs=2,
        aborts=True,
        co_commits=True,
    ),
)
