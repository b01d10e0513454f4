"""Whether a snapshot is in the history of ``main``, whatever has expired: random histories.

All snapshots that there ever were tell what is true. A snapshot in the history is never told to be out
of it: that would stop a healthy job. One that is not is never told to be in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any

from abs_clients.iceberg import history
from tests.planted import planted

HISTORIES = 400


@dataclass
class Tree:
    """A table's snapshots: with each commit a number, and a parent.

    Args:
        numbered: as of format version 2; version 1 has no sequence numbers.
        forgets: whether a clean-up leaves no trace of an expired parent, as pyiceberg's.
    """

    numbered: bool
    forgets: bool
    parents: dict[int, int | None] = field(default_factory=dict)
    kept: dict[int, int | None] = field(default_factory=dict)
    main: int | None = None
    branch: int | None = None
    tags: set[int] = field(default_factory=set)

    def commit(self, parent: int | None) -> int:
        number = len(self.parents) + 1
        self.parents[number] = self.kept[number] = parent
        return number

    def lineage(self) -> set[int]:
        found, at = set[int](), self.main
        while at is not None:
            found.add(at)
            at = self.parents[at]
        return found

    def expire(self, random: Random) -> None:
        heads = {self.main, self.branch, *self.tags}
        gone = {n for n in self.kept if n not in heads and random.random() < 0.6}
        self.kept = {
            n: None if self.forgets and parent in gone else parent
            for n, parent in self.kept.items()
            if n not in gone
        }

    def has(self, number: int) -> bool | None:
        def shown(number: int) -> Any:
            return SimpleNamespace(
                snapshot_id=number,
                sequence_number=number if self.numbered else 0,
                parent_snapshot_id=self.kept[number],
                timestamp_ms=number,
            )

        metadata: Any = SimpleNamespace(
            current_snapshot_id=self.main, snapshots=list(map(shown, self.kept))
        )
        return history.is_ancestor(metadata, f"{number if self.numbered else 0} {number}")


def grown(random: Random) -> Tree:
    """Commits, a branch, tags, rollbacks, a table that is replaced, and clean-ups, in any order."""
    tree = Tree(numbered=random.random() < 0.8, forgets=random.random() < 0.5)
    for _ in range(random.randint(2, 25)):
        chance = random.random()
        if chance < 0.55 or tree.main is None:
            tree.main = tree.commit(tree.main)
        elif chance < 0.65:
            tree.branch = tree.commit(tree.branch or tree.main)
        elif chance < 0.75:
            tree.tags.add(random.choice(sorted(tree.kept)))
        elif chance < 0.82:
            tree.main = random.choice(sorted(tree.kept))
        elif chance < 0.84:
            tree.main = tree.commit(None)
        else:
            tree.expire(random)
    return tree


def check() -> None:
    for seed in range(HISTORIES):
        tree = grown(Random(seed))
        there = tree.lineage()
        for number in tree.parents:
            told = tree.has(number)
            assert told in (None, number in there), (seed, number, told, tree)


def test_what_a_clean_up_has_left_is_never_told_wrong() -> None:
    check()


def test_a_table_that_was_rolled_back_or_replaced_is_told_where_nothing_has_expired() -> None:
    wrong = 0
    for seed in range(HISTORIES):
        tree = grown(Random(seed))
        if tree.numbered and len(tree.kept) == len(tree.parents):
            there = tree.lineage()
            assert all(tree.has(number) is (number in there) for number in tree.parents), seed
            wrong += len(tree.parents) - len(there)
    assert wrong > 100, "hardly any snapshot was left behind"


def test_a_tag_that_is_taken_for_a_rollback_is_found() -> None:
    def by_what_is_kept(metadata: Any, place: str) -> bool | None:
        identity = int(place.split()[1])
        kept = {each.snapshot_id: each for each in metadata.snapshots}
        at = metadata.current_snapshot_id
        while at in kept and at != identity:
            at = kept[at].parent_snapshot_id
        return at == identity if identity in kept else None

    with planted((history, "is_ancestor", by_what_is_kept)):
        check()
