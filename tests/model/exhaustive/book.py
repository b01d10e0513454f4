"""Numbers for states and decisions, and the verdicts of the rules on them.

Rules are pure functions: each is asked once for each argument, whatever number of histories meet it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from abs_core import consent
from abs_core.errors import ProtocolError
from abs_core.model import Committable, Decision, HandleName, JobState
from abs_core.protocol import Refused, RunIdentity, Skip, Verdict, ended
from tests.model.exhaustive.configuration import Configuration

REGISTER, JOB, TARGET = "0" * 16, "job", "target"
T = TypeVar("T")


class Violated(AssertionError):  # noqa: N818 - the name says what happened
    """An invariant does not hold; ``explore`` adds the history that led to it."""


class Writer(NamedTuple):
    """One attempt of one task of one run. ``bit`` tells the writers of one run's epoch apart."""

    place: int
    run: int
    epoch: int
    partition: int
    attempt: int
    bit: int

    def __str__(self) -> str:
        return f"run{self.run} epoch {self.epoch} partition {self.partition} try {self.attempt}"

    def handle(self, generation: int) -> HandleName:
        attempt = f"{self.run:x}{self.attempt:x}"
        return HandleName(REGISTER, JOB, generation, self.epoch, self.partition, attempt)


class Answer(NamedTuple):
    """A rule's verdict: the number of the state it leads to, or the refusal."""

    state: int
    changed: bool
    refused: ProtocolError | None = None


class Book:
    """What there is in one configuration, and what its rules say.

    Every state goes by a number; 0 is the register that is not there yet.
    """

    def __init__(self, config: Configuration) -> None:
        self.config = config
        self.rules = config.rules
        self.writers = _writers(config)
        self.of: dict[tuple[int, int], list[Writer]] = {}
        for writer in self.writers:
            self.of.setdefault((writer.run, writer.epoch), []).append(writer)
        self.contents = sorted({spec.content for spec in config.runs})
        self.content_of = [self.contents.index(spec.content) for spec in config.runs]
        self._states: list[JobState | None] = [None]
        self._numbers: dict[JobState | None, int] = {None: 0}
        self._decisions: list[Decision] = []
        self._decision_numbers: dict[Decision, int] = {}
        self._by_attempt = {
            w.handle(0).attempt + f".{w.epoch}.{w.partition}": w for w in self.writers
        }
        self._known: dict[tuple[Any, ...], Any] = {}

    def allow(self, refused: ProtocolError) -> None:
        """A run ends by this refusal; it must be one that can come without a defect."""
        if not isinstance(refused, self.config.refusals):
            raise Violated(f"a run is refused, and nobody from outside did it: {refused}")

    def number(self, state: JobState) -> int:
        if state not in self._numbers:
            self._numbers[state] = len(self._states)
            self._states.append(state)
        return self._numbers[state]

    def state(self, number: int) -> JobState:
        state = self._states[number]
        assert state is not None, "a process acts on a register that is not there"
        return state

    def decision(self, number: int) -> Decision:
        return self._decisions[number]

    def first_open(self, state: int) -> int | None:
        """The oldest open decision's number."""
        opened = self.state(state).open
        if not opened:
            return None
        if opened[0] not in self._decision_numbers:
            self._decision_numbers[opened[0]] = len(self._decisions)
            self._decisions.append(opened[0])
        return self._decision_numbers[opened[0]]

    def writers_of(self, decision: Decision) -> list[Writer]:
        """Whose handles it names."""
        return [self._by_attempt[f"{h.attempt}.{h.epoch}.{h.partition}"] for h in decision.handles]

    def is_open(self, state: int, decision: int) -> bool:
        return self.state(state).is_open(self._decisions[decision])

    def generation(self, state: int, run: int) -> int:
        """The generation under which the run writes; it has started."""

        def compute() -> int:
            present = self.state(state)
            return [*present.superseded, present.run].index(f"run{run}") + 1

        return self._once(("generation", state, run), compute)

    def start(self, state: int, run: int) -> Answer:
        present = self._states[state]
        return self._ask(
            ("start", state, run),
            lambda: self.rules.start(present, self._who(run, present), REGISTER),
        )

    def fenced(self, state: int, run: int) -> ProtocolError | None:
        """Why the run may not act on this state any more, or None."""

        def compute() -> ProtocolError | None:
            present = self.state(state)
            held = self.rules.generation_of(present, self._who(run, present))
            return held.error if isinstance(held, Refused) else None

        return self._once(("fenced", state, run), compute)

    def plan(self, state: int, run: int, epoch: int) -> bool | ProtocolError:
        """Whether to write the epoch, or the refusal."""

        def compute() -> bool | ProtocolError:
            planned = self.rules.plan(self.state(state), self._held(state, run), epoch)
            return planned.error if isinstance(planned, Refused) else not isinstance(planned, Skip)

        return self._once(("plan", state, run, epoch), compute)

    def differs(self, state: int, run: int, epoch: int) -> ProtocolError | None:
        """Why the epoch that is decided is not the one this run replays, or None."""

        def compute() -> ProtocolError | None:
            fingerprint = self._fingerprint(run, epoch)
            refused = self.rules.same_epoch(self.state(state), epoch, fingerprint, 1)
            return None if refused is None else refused.error

        return self._once(("differs", state, run, epoch), compute)

    def decide(self, state: int, run: int, epoch: int, named: int) -> Answer:
        rule = self.rules.co_commit if self.config.co_commits else self.rules.decide
        return self._as_run(
            ("decide", state, run, epoch, named),
            lambda present, generation: rule(
                present,
                generation,
                epoch,
                self._committables(state, run, epoch, named),
                fingerprint=self._fingerprint(run, epoch),
                rows=1,
            ),
        )

    def abandon(self, state: int, run: int, epoch: int) -> Answer:
        return self._as_run(
            ("abandon", state, run, epoch),
            lambda present, generation: self.rules.abandon(present, generation, epoch),
        )

    def end(self, state: int, run: int) -> Answer:
        """The run gives itself up."""
        present = self.state(state)
        return self._ask(
            ("end", state, run), lambda: self.rules.end(present, self._who(run, present))
        )

    def has_ended(self, state: int, run: int) -> bool:
        """Whether the run was the last to hold the generation, and has given itself up."""
        present = self.state(state)
        return present.run == ended(self._who(run, present)).run

    def finish(self, state: int, decision: int) -> Answer:
        return self._ask(
            ("finish", state, decision),
            lambda: self.rules.finish(self.state(state), self._decisions[decision]),
        )

    def sweepable(self, state: int, run: int, writer: int, generation: int) -> bool:
        """Whether the run, knowing this state, may abort what the writer prepared."""

        def compute() -> bool:
            handle = self.writers[writer].handle(generation)
            return self.rules.sweepable(self.state(state), self._held(state, run), handle)

        return self._once(("sweep", state, run, writer, generation), compute)

    def forgettable(self, state: int, writer: int, generation: int) -> bool:
        """Whether whoever knows this state may delete the writer's marker."""

        def compute() -> bool:
            present = self.state(state)
            handle = self.writers[writer].handle(generation)
            return self.rules.forgettable(present, present.generation, handle)

        return self._once(("forget", state, writer, generation), compute)

    def _held(self, state: int, run: int) -> int:
        present = self.state(state)
        who = self._who(run, present)
        held = self.rules.generation_of(present, ended(who) if self.has_ended(state, run) else who)
        return held if isinstance(held, int) else self.generation(state, run)

    def _as_run(self, key: tuple[Any, ...], rule: Callable[[JobState, int], Verdict]) -> Answer:
        """As ``Decider._as_run``: a rule that only the run which holds the generation applies."""

        def checked() -> Verdict:
            present = self.state(key[1])
            held = self.rules.generation_of(present, self._who(key[2], present))
            return held if isinstance(held, Refused) else rule(present, held)

        return self._ask(key, checked)

    def _ask(self, key: tuple[Any, ...], rule: Callable[[], Verdict]) -> Answer:
        def compute() -> Answer:
            verdict = rule()
            if isinstance(verdict, Refused):
                return Answer(key[1], changed=False, refused=verdict.error)
            return Answer(self.number(verdict.state), changed=verdict.state != self._states[key[1]])

        return self._once(key, compute)

    def _once(self, key: tuple[Any, ...], compute: Callable[[], T]) -> T:
        try:
            known: T = self._known[key]
        except KeyError:
            known = self._known[key] = compute()
        return known

    def _who(self, run: int, state: JobState | None) -> RunIdentity:
        """The run, with the consent that its operator would read off the error."""
        spec = self.config.runs[run]
        who = RunIdentity(JOB, spec.lineage, f"run{run}", TARGET)
        if not spec.adopts or state is None:
            return who
        return replace(who, adopt=consent.to_adopt(state, who, 0))

    def _fingerprint(self, run: int, epoch: int) -> str:
        return f"{self.config.runs[run].content} {epoch}"

    def _committables(self, state: int, run: int, epoch: int, named: int) -> Sequence[Committable]:
        generation = self.generation(state, run)
        chosen = [writer for writer in self.of[run, epoch] if named & writer.bit]
        return [Committable(writer.handle(generation), 1, "none:") for writer in chosen]


def _writers(config: Configuration) -> list[Writer]:
    found: list[Writer] = []
    for run, spec in enumerate(config.runs):
        for epoch in range(spec.first, config.epochs):
            for bit, (partition, attempt) in enumerate(spec.slots):
                found.append(Writer(len(found), run, epoch, partition, attempt, 1 << bit))
    return found
