"""The models in bytes that `xtask/src/peers/int8.rs` wrote, and how an engine's outputs are compared."""

import json
import os
import sys

import numpy as np

from report import expect, finish

__all__ = ["expect_close", "finish", "folders"]

WRITTEN = sys.argv[1]


class Form:
    """A model in one form: what frazil computes with it, and how many products are in bytes."""

    def __init__(self, name, folder):
        self.name = name
        self.is_small = name.startswith("squad")
        with open(os.path.join(folder, "form.json")) as f:
            self.counts = json.load(f)
        npz = np.load(os.path.join(folder, "io.npz"))
        self.inputs = {key: npz[key] for key in npz.files if ":" not in key}
        self.wanted = {key.split(":", 1)[1]: npz[key] for key in npz.files if key.startswith("out:")}
        self.float = {key.split(":", 1)[1]: npz[key] for key in npz.files if key.startswith("float:")}

    def names(self):
        return self.wanted.keys()

    def linears(self):
        """Linear layers that an engine can compute in bytes: none whose steps it would find itself."""
        return 0 if self.counts["rows"] else self.counts["linears"]

    def products(self):
        return self.linears() + 2 * self.counts["attentions"]


def folders():
    """Folder, form and inputs of every model."""
    models = sorted(entry for entry in os.listdir(WRITTEN) if os.path.isdir(os.path.join(WRITTEN, entry)))
    for model in models:
        for form in sorted(os.listdir(os.path.join(WRITTEN, model))):
            folder = os.path.join(WRITTEN, model, form)
            found = Form(f"{model}, {form}", folder)
            yield folder, found, found.inputs


def expect_close(form, outputs):
    """The engine's numbers are frazil's, but for steps that were missed by a hair.

    A number between two steps goes to one or the other by its last bit. That one number then differs by a step, about
    5 in 100 of the numbers computed from it go to another step, too, and one product later the row's roundings
    have nothing to do with each other any more. Where that happens early and in every row (six layers of width 384), the
    outputs differ as much as bytes differ from float32 at all: ONNX Runtime's from its own, too, if one weight is
    changed by 1e-6 of itself. So of the real model it is demanded that the engine is nearer to frazil than bytes are to
    float32 on average; a wrong scale anywhere would be far beyond that. In the small model few rows are
    touched, and the bounds are those of a few steps."""
    expect(outputs.keys() == form.names(), f"outputs {sorted(outputs)}, not {sorted(form.names())}")
    said = []
    for name, wanted in form.wanted.items():
        found = outputs[name]
        expect(found.shape == wanted.shape, f"`{name}` is {found.shape}, not {wanted.shape}")
        apart, cost = np.abs(found - wanted), np.abs(form.float[name] - wanted)
        mean, worst, limit = float(apart.mean()), float(apart.max()), float(cost.mean())
        said.append(f"`{name}` {mean:.1e} on average, {worst:.1e} at most (from float32 {limit:.1e}, {cost.max():.1e})")
        if form.is_small:
            expect(mean <= 2e-4 and worst <= 5e-2, said[-1])
        expect(mean <= limit, said[-1])
        # Where the best place leads by more than flips can move it.
        ordered = np.sort(wanted, -1)
        clear = ordered[:, -1] - ordered[:, -2] > (0.1 if form.is_small else 2.0)
        same = (found.argmax(-1) == wanted.argmax(-1))[clear]
        expect(clear.any() and same.all(), f"`{name}` has other places: {(~same).sum()} of {clear.sum()} clear ones")
    return ", ".join(said)
