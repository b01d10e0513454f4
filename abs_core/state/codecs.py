"""Codecs for the values of states: Arrow types (whole arrays at once), JSON, pickle, raw bytes."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from abs_core.errors import CorruptionError, RowError
from abs_core.state.contracts import ArrayCodec, Codec

T = TypeVar("T")


@dataclass(frozen=True)
class ByFunctions(Generic[T]):
    """A codec of two functions; the way to write one's own.

    Args:
        name: kept in snapshots; give another when the format changes.
    """

    name: str
    to_bytes: Callable[[T], bytes]
    from_bytes: Callable[[bytes], T]

    def encode(self, value: T) -> bytes:
        try:
            return self.to_bytes(value)
        except (TypeError, ValueError, struct.error, pickle.PicklingError, AttributeError) as error:
            raise RowError(
                f"A {type(value).__name__} can't be kept by the codec {self.name}: {error}.",
                remedy="declare the state with another codec.",
            ) from error

    def decode(self, raw: bytes) -> T:
        try:
            return self.from_bytes(raw)
        except Exception as error:  # unpickling runs code of the user's classes
            raise CorruptionError(
                f"A value of a state can't be read by the codec {self.name}: {error}.",
                remedy="has its class changed, or the codec under the same name?",
            ) from error


@dataclass(frozen=True)
class FixedWidth(ByFunctions[T]):
    """Values of an 8-byte Arrow type, little-endian."""

    type: pa.DataType = None

    def encode_array(self, values: pa.Array) -> list[bytes | None]:
        raw: list[bytes | None]
        if values.null_count:
            raw = values.view(pa.binary(8)).to_pylist()
        else:
            raw = np.ascontiguousarray(values.to_numpy(zero_copy_only=False)).view("V8").tolist()
        return raw

    def decode_array(self, raw: Sequence[bytes | None]) -> pa.Array:
        return pa.array(raw, pa.binary(8)).view(self.type)


@dataclass(frozen=True)
class VariableWidth(ByFunctions[T]):
    """Text or binary, as it is."""

    type: pa.DataType = None

    def encode_array(self, values: pa.Array) -> list[bytes | None]:
        raw: list[bytes | None] = values.cast(pa.binary()).to_pylist()
        return raw

    def decode_array(self, raw: Sequence[bytes | None]) -> pa.Array:
        return pa.array(raw, pa.binary()).cast(self.type)


def _fixed(name: str, code: str, kind: pa.DataType) -> ArrayCodec[Any]:
    layout = struct.Struct(code)
    return FixedWidth(name, layout.pack, lambda raw: layout.unpack(raw)[0], kind)


def _to_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


INT64: ArrayCodec[int] = _fixed("int64", "<q", pa.int64())
FLOAT64: ArrayCodec[float] = _fixed("float64", "<d", pa.float64())
TEXT: ArrayCodec[str] = VariableWidth("text", str.encode, bytes.decode, pa.string())
BYTES: ArrayCodec[bytes] = VariableWidth("bytes", bytes, bytes, pa.binary())
JSON: Codec[Any] = ByFunctions("json", _to_json, json.loads)
"""What JSON can say; a tuple comes back as a list, NaN is refused."""

PICKLE: Codec[Any] = ByFunctions("pickle", pickle.dumps, pickle.loads)
"""Any Python object. Reading runs code: only where all who can write the snapshot store are trusted."""
