"""OpenVINO runs the IR that frazil wrote.

usage: graphs_openvino.py WRITTEN [SHARED] [--full] [--model=NAME]"""

import os
import sys
import tempfile
import warnings

import numpy as np
import openvino

from cases import canonical, cases, chosen, each, feeds, flags, frazil, judge, small
from graphs import INPUTS
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


print(f"OpenVINO {openvino.__version__}, NumPy {np.__version__}")
each("OpenVINO", converted(TOLERANCE))
each("OpenVINO, fp16", converted(COMPRESSED, "--fp16"), [case for case in cases() if not case.golden == "google"])
each("OpenVINO, unfused", converted(TOLERANCE, "--fuse=false"), small())
finish()
