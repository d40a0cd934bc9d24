"""The values of `synthetic.json`, by formula. `xtask/src/peers/synthetic.rs` has the same formula
in Rust: neither side reads what the other computed."""

import json
import os

import ml_dtypes
import numpy as np

STEP = 0x9E3779B97F4A7C15


def table():
    """The tensors: name, dtype, shape, and for partitioned ones the parts along each axis."""
    with open(os.path.join(os.path.dirname(__file__), "synthetic.json")) as f:
        return json.load(f)


def stream(seed, count):
    """The first `count` numbers of splitmix64."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(STEP)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def random_bytes(seed, count):
    """The stream's numbers, little-endian, cut off at `count` bytes."""
    return stream(seed, (count + 7) // 8).astype("<u8").tobytes()[:count]


def strings(seed, count):
    """Byte strings: every fourth empty, every fourth long, the others short; any bytes."""
    values = []
    for i, n in enumerate(stream(seed, count).tolist()):
        length = {0: 0, 3: 70_000}.get(i % 4, n % 24)
        values.append(random_bytes(n, length))
    return values


STORED_AS = {"qint8": "int8", "quint8": "uint8", "qint16": "int16", "quint16": "uint16", "qint32": "int32"}


def numpy_dtype(name):
    """NumPy's type for the bytes of a TensorFlow type."""
    name = STORED_AS.get(name, name)
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def value(entry, seed):
    """The array of one entry of the table; `seed` is its place there, counted from one."""
    count = int(np.prod(entry["shape"], dtype=np.int64))
    if entry["dtype"] == "string":
        return np.array(strings(seed, count) + [None], dtype=object)[:-1].reshape(entry["shape"])
    dtype = numpy_dtype(entry["dtype"])
    raw = np.frombuffer(random_bytes(seed, count * dtype.itemsize), dtype=np.uint8)
    if entry["dtype"] == "bool":
        raw = raw & 1
    return raw.view(dtype).reshape(entry["shape"])


def values():
    """Name to (entry, array)."""
    return {e["name"]: (e, value(e, seed)) for seed, e in enumerate(table(), start=1)}
