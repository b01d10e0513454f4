"""Codecs for the values of states: Arrow types (whole arrays at once), JSON, pickle, raw bytes."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pyarrow as pa

from abs_core.errors import CorruptionError, RowError

T = TypeVar("T")


@dataclass(frozen=True)
class Codec(Generic[T]):
    """Encodes a state's values to bytes and back, by two functions.

    Args:
        name: kept in snapshots and compared; change it with the format.
        runs_code: whether reading runs code that the bytes name, as unpickling does. Detected for
            the functions of ``pickle`` themselves; set it for functions that call them.
    """

    name: str
    to_bytes: Callable[[T], bytes]
    from_bytes: Callable[[bytes], T]
    runs_code: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if getattr(self.from_bytes, "__module__", "") in ("pickle", "_pickle"):
            object.__setattr__(self, "runs_code", True)

    def encode(self, value: T) -> bytes:
        try:
            return self.to_bytes(value)
        except (TypeError, ValueError, struct.error, pickle.PicklingError, AttributeError) as error:
            raise RowError(
                f"A {type(value).__name__} can't be encoded by the codec {self.name}: {error}.",
                remedy="declare the state with another codec.",
            ) from error

    def decode(self, raw: bytes) -> T:
        try:
            return self.from_bytes(raw)
        except Exception as error:  # unpickling runs code of the user's classes
            raise CorruptionError(
                f"A state's value can't be decoded by the codec {self.name}: {error}.",
                remedy="check whether its class, or the codec of that name, has changed.",
            ) from error


@dataclass(frozen=True)
class ArrayCodec(Codec[T]):
    """Encodes whole Arrow arrays, too, without a Python loop: of text, binary, or 8 bytes each.

    ``raw`` is the bytes type of the same width as ``type``.
    """

    type: pa.DataType = None
    raw: pa.DataType = None

    def encode_array(self, values: pa.Array) -> list[bytes | None]:
        """None for a null."""
        encoded: list[bytes | None] = values.view(self.raw).cast(pa.binary()).to_pylist()
        return encoded

    def decode_array(self, raw: Sequence[bytes | None]) -> pa.Array:
        """Of type ``type``; null for None."""
        values = pa.array(raw, self.raw).view(self.type)
        values.validate(full=True)
        return values


def _fixed(name: str, code: str, kind: pa.DataType) -> ArrayCodec[Any]:
    layout = struct.Struct(code)
    return ArrayCodec(name, layout.pack, lambda raw: layout.unpack(raw)[0], kind, pa.binary(8))


def _check_names(value: Any) -> None:
    """Refuse keys that are not text: JSON writes 1 as "1", beside a "1" that was read back."""
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, str):
                raise TypeError(f"the key {name!r} of a dict is not a string")
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return
    for item in value:
        _check_names(item)


def _to_json(value: Any) -> bytes:
    _check_names(value)
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


INT64: ArrayCodec[int] = _fixed("int64", "<q", pa.int64())
FLOAT64: ArrayCodec[float] = _fixed("float64", "<d", pa.float64())
TEXT: ArrayCodec[str] = ArrayCodec("text", str.encode, bytes.decode, pa.string(), pa.binary())
BYTES: ArrayCodec[bytes] = ArrayCodec("bytes", bytes, bytes, pa.binary(), pa.binary())
JSON: Codec[Any] = Codec("json", _to_json, json.loads)
"""What JSON can say; a tuple comes back as a list; NaN, and keys that are no text, are refused."""

PICKLE: Codec[Any] = Codec("pickle", pickle.dumps, pickle.loads)
"""Any Python object. Reading runs code: a job needs consent (``trust_pickles``) where others can write
to its snapshot store."""
