"""Keys lie where the Java client puts them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from abs_sinks.kafka.columnar.encoder import murmur2, partitions_of

# org.apache.kafka.common.utils.UtilsTest.testMurmur2
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_murmur2_gives_the_java_clients_vectors() -> None:
    found = murmur2(pa.array(list(VECTORS), pa.binary())).view(np.int32)
    assert found.tolist() == list(VECTORS.values())


@given(st.lists(st.none() | st.binary(max_size=40), max_size=30), st.integers(0, 5))
def test_a_column_gives_what_each_key_gives_alone(keys: list[bytes | None], skip: int) -> None:
    column = pa.array(keys, pa.binary())[skip:]
    found = partitions_of(column, 7).tolist()
    assert found == [-1 if key is None else _alone(key) % 7 for key in keys[skip:]]


def _alone(key: bytes) -> int:
    """Utils.murmur2, written as in Java, made positive."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(key)
    for at in range(0, len(key) // 4 * 4, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    rest = key[len(key) // 4 * 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF
