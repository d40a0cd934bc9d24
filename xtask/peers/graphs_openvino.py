"""OpenVINO runs the IR that frazil wrote, from `frazil convert` and from `frazil mo`.

usage: graphs_openvino.py WRITTEN [SHARED] [--full] [--model=NAME]"""

import glob
import os
import sys
import tempfile
import warnings

import numpy as np
import openvino

from cases import Case, canonical, cases, chosen, each, feeds, flags, frazil, judge, small
from graphs import INPUTS, MODEL, PLACEHOLDERS, POOLED, difference, ports
from report import expect, finish

TOLERANCE = 5e-5
COMPRESSED = 2e-2
TYPES = {"i32": np.int32, "i64": np.int64}
CONFIG = {"INFERENCE_PRECISION_HINT": "f32"}
core = openvino.Core()


def silently(function):
    """What it returns, if nothing is said meanwhile: OpenVINO writes its warnings past Python."""
    sys.stdout.flush()
    kept = {stream: os.dup(stream) for stream in (1, 2)}
    with tempfile.TemporaryFile() as said:
        try:
            for stream in kept:
                os.dup2(said.fileno(), stream)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                result = function()
        finally:
            for stream, copy in kept.items():
                os.dup2(copy, stream)
                os.close(copy)
        said.seek(0)
        text = said.read().decode(errors="replace").strip()
    expect(not text, f"OpenVINO says: {text}")
    return result


def runner(case, path, reshaped=None):
    """A function that runs the IR. `reshaped` are the extents that OpenVINO itself is to give its inputs before."""

    def compile():
        model = core.read_model(path)
        if reshaped:
            model.reshape({port: openvino.PartialShape(reshaped) for port in model.inputs})
        return core.compile_model(model, "CPU", CONFIG)

    compiled = silently(compile)
    meant = {canonical(name) for name in [*case.inputs, *INPUTS]}
    # A port has several names; the case knows one of an input's.
    inputs = {next((n for n in port.get_names() if canonical(n) in meant), port.get_any_name()): port
              for port in compiled.inputs}
    outputs = {name: port for port in compiled.outputs for name in port.get_names()}

    def run(rows):
        fed = {inputs[name]: array.astype(TYPES[inputs[name].get_element_type().get_type_name()])
               for name, array in feeds(case, inputs, rows).items()}
        found = compiled(fed)
        return {role: found[outputs[chosen(outputs, role, name)]] for role, name in case.outputs.items()}

    return run


def convert(case, path, *more):
    frazil("convert", case.path(), "--to", "openvino", "-o", path, *flags(case), *more)


def converted(*more):
    def function(case, folder):
        path = os.path.join(folder, "model.xml")
        convert(case, path, *more)
        return judge(case, runner(case, path), TOLERANCE)

    return function


def compressed(case, folder):
    """With weights of 16 bits: what OpenVINO itself would make of the same model. How far that is from the
    original is up to the weights; made-up ones in 24 layers are no measure of it."""
    ours, plain, theirs = (os.path.join(folder, name) for name in ("ours.xml", "plain.xml", "theirs.xml"))
    convert(case, ours, "--fp16")
    convert(case, plain)
    openvino.save_model(core.read_model(plain), theirs, compress_to_fp16=True)
    run, wanted = runner(case, ours), runner(case, theirs)
    worst = 0.0

    def both(rows):
        nonlocal worst
        found, other = run(rows), wanted(rows)
        worst = max(worst, *(difference(found[role], other[role]) for role in found))
        return found

    detail = judge(case, both, np.inf if MODEL else COMPRESSED)
    expect(worst <= TOLERANCE, f"differs by {worst:.2e} from OpenVINO's own compression")
    return f"{detail}; from OpenVINO's own compression {worst:.1e}"


# `mo`, as recipe 4 has it, paths aside; and the same with free extents.

META = ["--input_meta_graph", "SOURCE", "--output", POOLED["pooled_output"], "--input"]
FROZEN = ["--input_model", "SOURCE", "--input"]


def typed(names, extents=""):
    return ",".join(f"{name}{{i32}}{extents}" for name in names)


def first(name, golden, source, extents="", *more, **baked):
    """Recipe 4's first command, on a MetaGraph."""
    flags = [*META, typed(PLACEHOLDERS, extents), *more]
    return Case(f"first command, {name}", golden, source, flags, PLACEHOLDERS, POOLED, **baked)


def second(name, extents, **baked):
    """Recipe 4's second command, on the frozen graph that the recipe makes reshapable."""
    inputs = ports(0, 1, 4)
    return Case(f"second command, {name}", "reshapable", "fixtures/reshapable/inference_graph.pb",
                [*FROZEN, typed(inputs, extents)], inputs, POOLED, **baked)


SMALL = ("meta", "fixtures/meta/bert_model.ckpt.meta")
GOOGLE = ("google", "@google/bert_model.ckpt.meta")
OPTIMIZED = [
    first("as it is", *SMALL, batch=4, length=128),
    first("FP16", *SMALL, "", "--data_type", "FP16", batch=4, length=128),
    first("free batch and length", *SMALL, "[? ?]"),
    first("bounded batch and length", *SMALL, "[1..8 1..128]"),
    first("Google's own MetaGraph, as it is", *GOOGLE, batch=1, length=128),
    first("Google's own MetaGraph, free batch and length", *GOOGLE, "[? ?]"),
    second("as it is", "[1 128]", batch=1, length=128),
    second("free batch", "[? 128]", length=128),
    second("free batch and length", "[? ?]"),
]
# What the recipe makes it for: OpenVINO itself changes the batch afterwards.
RESHAPED = [second("reshaped by OpenVINO", "[1 128]", batch=3, length=128)]


def optimized(case, folder):
    """`mo` as it is typed, in the current folder."""
    words = [case.path() if word == "SOURCE" else word for word in case.flags]
    frazil("mo", *words, folder=folder)
    [path] = glob.glob(os.path.join(folder, "*.xml"))
    expect(os.path.exists(path.removesuffix("xml") + "bin"), "no .bin beside it")
    reshaped = [case.batch, case.length] if case in RESHAPED else None
    return judge(case, runner(case, path, reshaped), COMPRESSED if "FP16" in words else TOLERANCE)


print(f"OpenVINO {openvino.__version__}, NumPy {np.__version__}")
each("OpenVINO", converted())
each("OpenVINO, fp16", compressed, [case for case in cases() if not case.golden == "google"])
each("OpenVINO, unfused", converted("--fuse=false"), small())
if not MODEL:
    each("mo", optimized, OPTIMIZED + RESHAPED)
finish()
