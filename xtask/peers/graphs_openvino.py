"""OpenVINO runs the IR that frazil wrote, from `frazil convert` and from `frazil mo`.

usage: graphs_openvino.py WRITTEN [SHARED] [--full] [--model=NAME]"""

import glob
import os
import sys
import tempfile
import warnings

import numpy as np
import openvino

from cases import Case, canonical, chosen, each, feeds, flags, frazil, judge, small
from graphs import INPUTS, MODEL, PLACEHOLDERS, POOLED, SHARED, ports
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


def compared(case, path, tolerance):
    compiled = silently(lambda: core.compile_model(core.read_model(path), "CPU", CONFIG))
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

    return judge(case, run, tolerance)


def converted(tolerance, *more):
    def function(case, folder):
        path = os.path.join(folder, "model.xml")
        frazil("convert", case.path(), "--to", "openvino", "-o", path, *flags(case), *more)
        return compared(case, path, tolerance)

    return function


def model_optimizer(case, folder):
    """`mo` as it is typed, in the current folder."""
    words = [case.path() if word == "SOURCE" else word for word in case.flags]
    frazil("mo", *words, folder=folder)
    [path] = glob.glob(os.path.join(folder, "*.xml"))
    expect(os.path.exists(path[:-3] + "bin"), "no .bin beside it")
    return compared(case, path, COMPRESSED if "FP16" in words else TOLERANCE)


# Recipe 4's two commands, the paths aside; and the same with free extents.
FIRST = ["--input_meta_graph", "SOURCE", "--output", POOLED["pooled_output"], "--input"]
SECOND = ["--input_model", "SOURCE", "--input"]


def typed(extents):
    return ",".join(f"{name}{{i32}}{extents}" for name in PLACEHOLDERS)


def typed_ports(extents):
    return ",".join(f"{name}{{i32}}{extents}" for name in ports(0, 1, 4))


OPTIMIZED = [
    Case("recipe 4's first command", "meta", "fixtures/meta/bert_model.ckpt.meta", [*FIRST, typed("")],
         PLACEHOLDERS, POOLED, batch=4, length=128),
    Case("recipe 4's first command, free extents", "meta", "fixtures/meta/bert_model.ckpt.meta", [*FIRST, typed("[? ?]")],
         PLACEHOLDERS, POOLED),
    Case("recipe 4's first command, FP16", "meta", "fixtures/meta/bert_model.ckpt.meta",
         [*FIRST, typed(""), "--data_type", "FP16"], PLACEHOLDERS, POOLED, batch=4, length=128),
    Case("recipe 4's second command", "reshapable", "fixtures/reshapable/inference_graph.pb",
         [*SECOND, typed_ports("[1 128]")], ports(0, 1, 4), POOLED, batch=1, length=128),
    Case("recipe 4's second command, free batch", "reshapable", "fixtures/reshapable/inference_graph.pb",
         [*SECOND, typed_ports("[? 128]")], ports(0, 1, 4), POOLED, length=128),
    Case("recipe 4's first command on Google's own MetaGraph", "google", "@google/bert_model.ckpt.meta",
         [*FIRST, typed("")], PLACEHOLDERS, POOLED, batch=1, length=128),
    Case("recipe 4's first command on Google's own MetaGraph, free extents", "google", "@google/bert_model.ckpt.meta",
         [*FIRST, typed("[? ?]")], PLACEHOLDERS, POOLED),
]

print(f"OpenVINO {openvino.__version__}, NumPy {np.__version__}")
each("OpenVINO", converted(TOLERANCE))
each("OpenVINO, fp16", converted(COMPRESSED, "--fp16"))
each("OpenVINO, unfused", converted(TOLERANCE, "--fuse=false"), small())
if SHARED and not MODEL:
    each("mo", model_optimizer, OPTIMIZED)
finish()
