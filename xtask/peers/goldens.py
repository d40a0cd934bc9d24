"""The wanted outputs of every model that the graph peers run, made by TensorFlow.

usage: goldens.py WRITTEN [SHARED] [--full] [--model=NAME]

For each original of `graphs.py`, TensorFlow first runs it on the inputs that TensorFlow 1.15 was
given, and must come out at the outputs that TensorFlow 1.15 gave. Then WRITTEN/NAME gets
- `golden.npz`: all of those inputs, with the outputs of TensorFlow 1.15;
- `BxS.npz` for every batch B and length S of the grid: at the golden's length rows of the golden,
  at others rows cut (or repeated) to the length, with the outputs of the original;
and in both, below `here/`, what this TensorFlow computes with the original.

An original of baked length runs shorter rows padded: padding is masked with -10000, whose exponent
is 0 in float32, so it changes no output of a real position. That is checked, too: where 1.15's row
has no real token beyond the cut, the cut row must give 1.15's outputs."""

import os
import subprocess
import sys

import numpy as np
import tensorflow as tf

import bert
from graphs import BY_POSITION, INPUTS, MODEL, by_row, chosen_originals, difference, flat, run, shared, written
from report import check, expect, finish
from tf1 import imported, read_graph, session, tensor, v1



class Frozen:
    """A frozen graph, in TensorFlow."""

    def __init__(self, original, path):
        self.original = original
        self.session = session(imported(read_graph(path)))

    def run(self, rows):
        feeds = {tensor(name): array for name, array in zip(self.original.inputs, rows)}
        return self.session.run({role: tensor(name) for role, name in self.original.outputs.items()}, feeds)


class MetaGraph(Frozen):
    """A MetaGraph with the variables of the checkpoint beside it, in TensorFlow."""

    def __init__(self, original, path):
        self.original = original
        graph = tf.Graph()
        self.session = session(graph)
        with graph.as_default():
            saver = v1.train.import_meta_graph(path, clear_devices=True)
            saver.restore(self.session, path.removesuffix(".meta"))


class Formula:
    """The weights of a checkpoint in NumPy, where there is no graph."""

    def __init__(self, original, path):
        reader = tf.train.load_checkpoint(path)
        self.weights = {name: reader.get_tensor(name).astype(np.float64) for name in reader.get_variable_to_shape_map()}
        self.original = original

    def run(self, rows):
        return bert.outputs(self.weights, self.original.heads, *rows)


KINDS = {"frozen": Frozen, "meta": MetaGraph, "formula": Formula}


def cut(rows, b, s):
    """`b` rows of length `s`: the given ones again and again, each cut or repeated."""
    which = np.arange(b) % len(rows[0])
    made = [np.stack([np.resize(row, s) for row in array[which]]) for array in rows[:3]]
    return made + [array[which] % s for array in rows[3:]]


def save(original, name, rows, outputs, here):
    os.makedirs(written(original.name), exist_ok=True)
    here = {f"here/{role}": value for role, value in here.items()}
    np.savez(written(original.name, name), **dict(zip(INPUTS, rows)), **outputs, **here)


def make(original):
    model = KINDS[original.kind](original, original.path())
    rows, golden = original.golden()

    if golden:

        @check(f"{original.name}: the original gives what TensorFlow 1.15 gave")
        def _():
            found = run(model.run, original, rows)
            save(original, "golden.npz", rows, golden, found)
            told = []
            for role, value in golden.items():
                d = difference(found[role], value)
                expect(d <= original.rounding, f"{role} differs by {d:.2e}, more than {original.rounding:.0e}")
                told.append(f"{role} {d:.1e}")
            return ", ".join(told)

    @check(f"{original.name}: wanted outputs at {', '.join(f'{b}x{s}' for b, s in original.grid())}")
    def _():
        valid = 0
        for b, s in original.grid():
            which = np.arange(b) % len(rows[0])
            given = cut(rows, b, s)
            here = outputs = run(model.run, original, given)
            if golden and s == rows[0].shape[1]:
                outputs = {role: flat(role, by_row(role, value, len(rows[0]))[which]) for role, value in golden.items()}
            elif golden:
                valid += same_where_only_padding_went(original, outputs, golden, rows, given)
            save(original, f"{b}x{s}.npz", given, outputs, here)
        return f"{valid} rows lost only padding, and gave the same" if valid else None


def same_where_only_padding_went(original, outputs, golden, rows, given):
    """How many rows have all their real tokens and positions left; all of those must agree."""
    b, s = given[0].shape
    count = 0
    for i in range(b):
        r = i % len(rows[0])
        positions = rows[3][r] if len(rows) > 3 else np.zeros(1)
        if s > rows[0].shape[1] or rows[1][r, s:].any() or positions.max() >= s:
            continue
        for role, value in golden.items():
            found, wanted = by_row(role, outputs[role], b)[i], by_row(role, value, len(rows[0]))[r]
            d = difference(found, wanted[:s] if role in BY_POSITION else wanted)
            expect(d <= original.rounding, f"row {r} cut to {s}: {role} differs by {d:.2e}")
        count += 1
    return count


print(f"TensorFlow {tf.__version__}, NumPy {np.__version__}")
if not MODEL:
    # The real model's frozen graphs are kept as what is not in its checkpoint.
    subprocess.run([sys.executable, shared("models/rebuild_exports.py"), "squad", written("rebuilt")],
                   check=True, stdout=subprocess.DEVNULL)
for original in chosen_originals():
    make(original)
finish()
