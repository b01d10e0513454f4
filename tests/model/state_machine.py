"""A search by chance for histories that break a state backend; needs ``hypothesis``.

Steps: writes and deletions, copies, persisting, records, notifications, failures and crashes, in any
order that a runtime with one checkpoint in flight can produce, at changing parallelism, with sweeps.
After each history, and at each restore, the state must be the model's.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from abs_embedded.state.contracts import StateHandle
from abs_embedded.testing.state_case import KEYS, SUBS, Model, StateCase, StateSubject

Flat = dict[bytes, bytes | None]
Deep = dict[tuple[bytes, bytes], bytes | None]
_VALUES = st.one_of(st.none(), st.binary(max_size=3))
_FLAT = st.dictionaries(st.sampled_from(KEYS), _VALUES, max_size=6)
_DEEP = st.dictionaries(
    st.tuples(st.sampled_from(KEYS[:6]), st.sampled_from(SUBS)), _VALUES, max_size=6
)


class Histories(RuleBasedStateMachine):
    """See above; ``state_machine`` makes the one for a backend."""

    subject: ClassVar[StateSubject]

    @initialize(parallelism=st.integers(1, 4))
    def begin(self, parallelism: int) -> None:
        self.case = StateCase(self.subject, f"job{secrets.token_hex(6)}", parallelism)
        self.saved = Model()
        self.number: int | None = None
        self.handles: Sequence[StateHandle] | None = None

    @rule(flat=_FLAT, deep=_DEEP)
    def write(self, flat: Flat, deep: Deep) -> None:
        self.case.put(flat)
        self.case.put_deep(deep)

    @precondition(lambda self: self.number is None)
    @rule(flat=_FLAT, deep=_DEEP)
    def copy(self, flat: Flat, deep: Deep) -> None:
        """And go on writing."""
        self.number = self.case.snapshot()
        self.write(flat, deep)

    @precondition(lambda self: self.number is not None and self.handles is None)
    @rule()
    def persist(self) -> None:
        assert self.number is not None
        self.handles = self.case.persist(self.number)

    @precondition(lambda self: self.handles is not None)
    @rule(notified=st.booleans(), parallelism=st.integers(1, 4))
    def complete(self, notified: bool, parallelism: int) -> None:
        """The record is written; then all are notified, or the job dies."""
        assert self.number is not None
        assert self.handles is not None
        self.saved = self.case.decide(self.number, self.handles)
        if notified:
            self.case.notify(self.number)
            self.number = self.handles = None
            self.case.sweep()
        else:
            self.crash(parallelism)

    @rule(parallelism=st.one_of(st.just(0), st.integers(1, 4)))
    def fail(self, parallelism: int) -> None:
        """The checkpoint fails, or (at a parallelism) the job dies."""
        if parallelism:
            self.crash(parallelism)
        elif self.number is not None:
            self.case.abort(self.number)
            self.number = self.handles = None

    def crash(self, parallelism: int) -> None:
        self.number = self.handles = None
        self.case.crash(parallelism, expect=self.saved)
        self.case.holds("restored")

    def teardown(self) -> None:
        if not hasattr(self, "case"):
            return
        if self.number is None:
            self.case.holds_each_once("at the end")
        self.case.holds("at the end")
        self.case.close()


def state_machine(subject: StateSubject) -> type[Histories]:
    """The machine for one backend; run it with ``hypothesis.stateful.run_state_machine_as_test``."""
    return type("Histories", (Histories,), {"subject": subject})
