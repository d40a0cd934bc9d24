"""One engine, one model, one process: the line protocol of `cargo xtask bench peers` for engines in Python.

`serve(Engine)` loads the model of the command line, answers one line of JSON to each line of JSON on
stdin, and sleeps in between. The protocol is told in `benchmarks/README.md`; `benchmarks/arms` speaks the
same one for Rust.

usage of every script that calls it: run_ENGINE.py f32|int8 FOLDER THREADS [prepare]

With `prepare` it only writes what the engine makes of the model for itself, so that this costs the process
that is measured no memory."""

import json
import os
import sys
import time

# Engines read these when they are imported, so this module is imported before them.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = sys.argv[3] if len(sys.argv) > 3 else "1"

# What engines print is no answer: stdout is kept for answers, and everybody else writes to stderr.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import numpy as np  # noqa: E402


class Setup:
    """What to load and how."""

    def __init__(self, precision, folder, threads):
        self.precision, self.folder, self.threads = precision, folder, int(threads)
        with open(self.path("bert_config.json")) as file:
            self.config = json.load(file)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def made(self, name, make):
        """The path of a file that `make(path)` writes once; it has its name only when it is complete."""
        path = self.path(name)
        if not os.path.exists(path):
            stem, ending = os.path.splitext(path)
            unfinished = f"{stem}-unfinished{ending}"
            make(unfinished)
            if os.path.exists(f"{stem}-unfinished.bin"):  # OpenVINO's weights, beside the .xml
                os.replace(f"{stem}-unfinished.bin", f"{stem}.bin")
            os.replace(unfinished, path)
        return path

    def calibration(self, count=16, seq=128):
        """Batches of one sequence: generated ids, all in the vocabulary."""
        for first in range(count):
            yield batch([seq], seq, 1000 + first, self.config["vocab_size"])


def ids(sequence, length, vocabulary):
    """Word pieces for the places of a sequence: `id` of `benchmarks/arms/src/batch.rs`."""
    low = min(1000, vocabulary // 4)
    positions = np.arange(1, length + 1, dtype=np.uint64)
    mixed = np.uint64((sequence + 1) * 2_654_435_761) ^ (positions * np.uint64(2_246_822_519))
    spread = ((mixed & np.uint64(0xFFFFFFFF)) * np.uint64(0x9E3779B1)) >> np.uint64(16)
    return (low + spread % np.uint64(vocabulary - low)).astype(np.int64)


def batch(lengths, seq, first, vocabulary):
    """`input_ids`, `input_mask` and `segment_ids`, int32 [b, s]."""
    shape = (len(lengths), seq)
    fed = {name: np.zeros(shape, np.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    for row, length in enumerate(lengths):
        fed["input_ids"][row, :length] = ids(first + row, length, vocabulary)
        fed["input_mask"][row, :length] = 1
        fed["segment_ids"][row, length // 8 : length] = 1
    return fed


def batches(request, vocabulary):
    """The lengths and inputs of each batch of a request."""
    made, first = [], 0
    for lengths in request["batches"]:
        seq = max([request.get("pad") or 0, *lengths])
        made.append((lengths, batch(lengths, seq, first, vocabulary)))
        first += len(lengths)
    return made


def answer(engine, request, prepared, vocabulary):
    if request.get("peaks"):
        return {"error": "this engine measures no peaks"}
    key = json.dumps([request["batches"], request.get("pad")])
    if key not in prepared:
        prepared[key] = [(lengths, engine.feed(inputs)) for lengths, inputs in batches(request, vocabulary)]
    fed = prepared[key]
    for _ in range(request.get("warm", 0)):
        for _, inputs in fed:
            engine.run(inputs)
    seconds = []
    for _ in range(request.get("repeat", 0)):
        start = time.perf_counter()
        for _, inputs in fed:
            engine.run(inputs)
        seconds.append(time.perf_counter() - start)
    found = {"seconds": seconds}
    if request.get("outputs"):
        real = []
        for lengths, inputs in fed:
            for logits in engine.run(inputs):
                for row, length in enumerate(lengths):
                    real.extend(np.asarray(logits)[row, :length].tolist())
        found["outputs"] = real
    return found


def serve(Engine):
    """An `Engine(setup)` has prepared its files; `load()` loads, `feed(inputs)` makes its own inputs of NumPy's,
    `run(fed)` gives the logits of starts and ends, [b, s] each; `version` and `about` are recorded."""
    setup = Setup(*sys.argv[1:4])
    vocabulary = setup.config["vocab_size"]

    def say(value):
        print(json.dumps(value), file=answers, flush=True)

    engine = Engine(setup)
    if sys.argv[4:] == ["prepare"]:
        return
    start = time.perf_counter()
    engine.load()
    load_seconds = time.perf_counter() - start
    answer(engine, {"batches": [[128]], "repeat": 1}, {}, vocabulary)
    first_seconds = time.perf_counter() - start
    say({"version": engine.version, "load_seconds": load_seconds, "first_seconds": first_seconds,
         "about": getattr(engine, "about", {})})
    prepared = {}
    for line in sys.stdin:
        try:
            found = answer(engine, json.loads(line), prepared, vocabulary)
        except Exception as error:  # An engine may fail in any way; the others go on.
            found = {"error": f"{type(error).__name__}: {error}"[:500]}
        say(found)


if __name__ == "__main__":
    expected = [10960, 21229, 2325, 16057]
    found = [int(ids(k, p + 1, 30522)[p]) for k, p in [(0, 0), (0, 1), (7, 127), (63, 383)]]
    assert found == expected, found
    print("ids are Rust's", file=answers)
