"""A token of consent works where it was named, once: random jobs, restores and starts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random

import pytest

from abs_core import consent
from abs_core.certificate import MemoryCertificates
from abs_core.errors import AbsError
from abs_core.patience import Patience
from abs_core.protocol import RunIdentity
from abs_core.registers import MemoryRegister
from abs_testing.case import Case, rows
from abs_testing.engine import Run
from tests import sample
from tests.kit.fake_harness import open_fake
from tests.planted import Plant, planted

FROZEN, MORE = range(12), range(12, 1500)
QUICK = Patience(seconds=0.2)
OTHERS = 12
"""So many tokens of others are tried at a refusal, at most."""


class Walk:
    """Two jobs, each run by two queries, with register, target and checkpoints that go back."""

    def __init__(
        self, case: Case, backup: Callable[[], Callable[[], None]], random: Random
    ) -> None:
        self.case, self.backup, self.random = case, backup, random
        self.register = MemoryRegister()
        self.checkpoints: dict[tuple[str, str], MemoryCertificates] = {}
        self.next = Counter[tuple[str, str]]()
        self.backs: list[Callable[[], None]] = []
        self.registers = [dict(self.register._cells)]
        self.tokens: list[str] = []
        self.used: set[str] = set()

    def step(self) -> None:
        what = self.random.choice(
            ["start"] * 5 + ["save", "register", "backup", "target", "certificate"]
        )
        if what == "save":
            self.registers.append(dict(self.register._cells))
        elif what == "register":
            self.register._cells = dict(self.random.choice(self.registers))
        elif what == "backup" and self.case.harness.read():
            self.backs.append(self.backup())
        elif what == "target" and self.backs:
            self.random.choice(self.backs)()
        else:
            query = self.random.choice(["a", "b"]), self.random.choice(["one", "two"])
            if what == "certificate":
                self.checkpoints.pop(query, None)
            elif (run := self._started(query)) is not None:
                self._epoch(run, query)

    def _started(self, query: tuple[str, str]) -> Run | None:
        try:
            return self._start(query)
        except AbsError as error:
            named = re.search(r"adopt=([0-9a-f]+)", error.remedy)
            mine = None if named is None else named[1]
        for other in self.random.sample(self.tokens, min(OTHERS, len(self.tokens))):
            if other != mine:
                with pytest.raises(AbsError):
                    self._start(query, other)
        if mine is None:
            return None
        self.tokens.append(mine)
        if self.random.random() < 0.5:
            return None
        try:
            run = self._start(query, mine)
        except AbsError:
            return None  # it led on to the next refusal
        assert mine not in self.used, f"token {mine} worked twice"
        self.used.add(mine)
        return run

    def _start(self, query: tuple[str, str], adopt: str | None = None) -> Run:
        job, lineage = query
        certificates = self.checkpoints.setdefault(query, MemoryCertificates())
        run = self.case.run(
            job,
            lineage=lineage,
            store=self.register,
            certificates=certificates,
            patience=QUICK,
            adopt=adopt,
            checkpoint=f"/{lineage}",
        )
        run.begin(self.next[query])
        return run

    def _epoch(self, run: Run, query: tuple[str, str]) -> None:
        try:
            run.epoch(self.next[query], rows(self.random.randrange(10**9), 2))
        except AbsError:
            return
        self.next[query] += 1


def walked(numbers: Iterable[int]) -> int:
    """How many tokens were named."""
    tokens = 0
    for number in numbers:
        with open_fake("2pc", "append", own_register=False) as harness, Case(harness) as case:
            walk = Walk(case, harness.backup, Random(f"consent {number} {sample.seed()}"))
            for _ in range(30):
                walk.step()
            tokens += len(walk.tokens)
    return tokens


def test_a_token_works_for_its_own_refusal_alone() -> None:
    assert walked(FROZEN) > 20


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_no_token_works_for_another_refusal() -> None:
    assert walked(MORE) > 1000


def of_any_query(plant: Plant) -> None:
    right, anybody = consent._token, RunIdentity("", "", "", "")
    plant(consent, "_token", lambda purpose, who, epoch, *more: right(purpose, anybody, epoch))


def test_a_token_that_is_valid_for_more_is_found() -> None:
    with planted(of_any_query, by=(AssertionError, pytest.fail.Exception)):
        walked(FROZEN)
