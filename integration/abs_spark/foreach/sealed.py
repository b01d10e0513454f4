"""Seals options on their way to tasks, so that no dump, log or plan shows a secret (I9).

It hides them from eyes and searches, not from somebody who has the pickle and this code: tasks
must read them. Anyone who can read Spark's memory and network can read any connector's options.
"""

from __future__ import annotations

import pickle
import secrets
from typing import Any

from pyspark import cloudpickle


class Sealed:
    """A picklable value that neither its ``repr`` nor its pickle shows."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def open(self) -> Any:
        return self._value

    def __repr__(self) -> str:
        return "Sealed(...)"

    def __getstate__(self) -> tuple[bytes, bytes]:
        # It may hold a function of the user's.
        content: bytes = cloudpickle.dumps(self._value)  # type: ignore[no-untyped-call]
        pad = secrets.token_bytes(len(content))
        return pad, _xor(content, pad)

    def __setstate__(self, state: tuple[bytes, bytes]) -> None:
        self._value = pickle.loads(_xor(*state))  # noqa: S301 - Spark unpickled what it lies in


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one) ^ int.from_bytes(other)).to_bytes(len(one))
