"""The fakes keep the sink's contract, by the same checks that prove the real sinks."""

from __future__ import annotations

from functools import partial

import pytest

from abs_testing import Check, Opener, applicable, run_check
from abs_testing.checks import CHECKS
from tests.kit.fake_harness import open_fake
from tests.kit.refusing_fake import open_refusing

FAKES: dict[str, Opener] = {
    "2pc-append": partial(open_fake, "2pc", "append"),
    "2pc-append-foreign-register": partial(open_fake, "2pc", "append", own_register=False),
    "wal-append": partial(open_fake, "wal", "append"),
    "wal-append-foreign-register": partial(open_fake, "wal", "append", own_register=False),
    "wal-upsert": partial(open_fake, "wal", "upsert"),
    "wal-upsert-foreign-register": partial(open_fake, "wal", "upsert", own_register=False),
    "wal-rehearsed-foreign-register": open_refusing,
    "idempotent-upsert": partial(open_fake, "idempotent", "upsert"),
}

CASES = [
    pytest.param(opener, check, id=f"{name}-{check.rule}")
    for name, opener in FAKES.items()
    for check in applicable(opener)
]


@pytest.mark.parametrize(("opener", "check"), CASES)
def test_a_fake_keeps(opener: Opener, check: Check) -> None:
    assert run_check(opener, check)


def test_every_rule_applies_to_some_fake() -> None:
    applied = {check.rule for opener in FAKES.values() for check in applicable(opener)}
    assert applied == {check.rule for check in CHECKS}
