"""ONNX Runtime and OpenVINO run a real model in bytes over many questions, for frazil to score what they say.

usage: questions.py WRITTEN [SHARED] [--full]"""

import os
import sys

import numpy as np
import onnxruntime
import openvino

from report import check, expect, finish

WRITTEN = sys.argv[1]
LOGITS = ("start_logits", "end_logits")


def runs():
    """The inputs of each run, by name."""
    npz = np.load(os.path.join(WRITTEN, "runs.npz"))
    found = {}
    for key in npz.files:
        name, place = key.rsplit(":", 1)
        found.setdefault(int(place), {})[name] = npz[key]
    return [found[place] for place in sorted(found)]


def save(engine, said):
    arrays = {f"{name}:{place}": outputs[name] for place, outputs in enumerate(said) for name in LOGITS}
    np.savez(os.path.join(WRITTEN, f"{engine}.npz"), **arrays)
    expect(all(np.isfinite(array).all() for array in arrays.values()), "not all logits are numbers")
    return f"{len(said)} runs"


def onnx_runtime():
    path = os.path.join(WRITTEN, "model.onnx")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    types = {i.name: np.int64 if "64" in i.type else np.int32 for i in session.get_inputs()}

    def run(inputs):
        fed = {name: inputs[name].astype(kind) for name, kind in types.items()}
        return dict(zip(LOGITS, session.run(LOGITS, fed)))

    return save("onnxruntime", [run(inputs) for inputs in runs()])


def open_vino():
    # What the file says, no more: some CPUs would round the inputs of bytes in groups of their own.
    properties = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
    compiled = openvino.Core().compile_model(os.path.join(WRITTEN, "model.xml"), "CPU", properties)

    def run(inputs):
        found = compiled({port: inputs[port.get_any_name()].astype(np.int32) for port in compiled.inputs})
        return {name: np.array(found[port]) for port in compiled.outputs for name in port.get_names() if name in LOGITS}

    return save("openvino", [run(inputs) for inputs in runs()])


print(f"ONNX Runtime {onnxruntime.__version__}, OpenVINO {openvino.__version__}, NumPy {np.__version__}")
check("ONNX Runtime")(onnx_runtime)
check("OpenVINO")(open_vino)
finish()
