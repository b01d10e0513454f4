"""Sinks for tables keep the contract, also at crashes, in a folder and in a bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from abs_core.crash import CrashPoint
from abs_testing import Opener
from abs_testing.checks import CHECKS
from abs_testing.rules import Check
from tests import sample
from tests.kit.crash_points import CO_COMMIT
from tests.sinks.contract import (
    Way,
    in_each,
    test_a_crash_at_any_passage_loses_and_doubles_nothing,  # noqa: F401
    test_a_crash_at_the_sampled_points_loses_and_doubles_nothing,  # noqa: F401
    test_the_sink_keeps_every_rule,  # noqa: F401
    test_the_sink_keeps_the_rules_of_a_target_that_refuses,  # noqa: F401
    test_the_sink_keeps_the_sampled_rules,  # noqa: F401
)
from tests.sinks.lake.conftest import KINDS, in_bucket, in_catalog, in_folder

POINTS = frozenset(CrashPoint) - CO_COMMIT
WORST = frozenset({CrashPoint.AFTER_PRE_COMMIT, CrashPoint.AFTER_DECIDE, CrashPoint.AFTER_COMMIT})
SOME = sample.cut(CHECKS, 8, "lake")
"""On a server, in the sample."""


def of_each_kind(
    place: str,
    rules: Sequence[Check],
    crashes: frozenset[CrashPoint],
    mark: pytest.MarkDecorator,
    salt: str,
) -> list[Way]:
    """The kinds of tables in one place, which share out the rules of the sample."""
    return [
        Way(
            f"{kind} {place}",
            sample.hand(rules, number, len(KINDS), salt),
            POINTS,
            crashes,
            marks=(mark,),
        )
        for number, kind in enumerate(KINDS)
    ]


FOLDERS = [
    replace(way, crashes=frozenset(sample.hand(sorted(POINTS), number, len(KINDS), "lake crashes")))
    for number, way in enumerate(of_each_kind("folder", CHECKS, POINTS, pytest.mark.long, "lake"))
]
"""Each point under one kind; the worst are under both, in a bucket."""
BUCKETS = of_each_kind("bucket", SOME, WORST, pytest.mark.services, "lake, on a server")
REST = Way("iceberg rest", CHECKS, POINTS, marks=(pytest.mark.campaign,))

pytest_generate_tests = in_each([*FOLDERS, *BUCKETS, REST])


@pytest.fixture
def opener(way: Way, tmp_path: Path, request: pytest.FixtureRequest) -> Opener:
    kind, place = way.name.split()
    if place == "folder":
        return in_folder(kind, tmp_path)
    if place == "rest":
        return in_catalog(tmp_path, request.getfixturevalue("rest"))
    return in_bucket(
        kind, tmp_path, request.getfixturevalue("store"), request.getfixturevalue("prefix")
    )
