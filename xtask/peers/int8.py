"""ONNX Runtime and OpenVINO run models in bytes that frazil wrote, in bytes, and agree with it.

usage: int8.py WRITTEN [SHARED] [--full]"""

import os
import tempfile

import numpy as np
import onnx
import onnxruntime
import openvino

from bytes_of import expect_close, folders, finish
from report import check, expect

# What ONNX Runtime's products of bytes are called.
OF_BYTES = ("MatMulIntegerToFloat", "QLinearMatMul", "QGemm")


def kernels(path):
    """How often ONNX Runtime computes with each kernel, after all its own changes to the graph."""
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # it warns that such a file is for this machine only
        options.optimized_model_filepath = os.path.join(folder, "optimised.onnx")
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        nodes = onnx.load(options.optimized_model_filepath).graph.node
    return session, [node.op_type for node in nodes]


def onnx_runtime(form, folder, inputs):
    path = os.path.join(folder, "model.onnx")
    onnx.checker.check_model(path, full_check=True)
    onnx.shape_inference.infer_shapes(onnx.load(path), check_type=True, strict_mode=True, data_prop=True)
    session, found = kernels(path)
    of_bytes = sum(kind in OF_BYTES for kind in found)
    expect(of_bytes == form.products(), f"{of_bytes} products of bytes, not {form.products()}: {sorted(set(found))}")
    names = [output.name for output in session.get_outputs()]
    types = {i.name: np.int64 if "64" in i.type else np.int32 for i in session.get_inputs()}
    outputs = session.run(names, {name: inputs[name].astype(t) for name, t in types.items()})
    return f"{of_bytes} products of bytes, " + expect_close(form, dict(zip(names, outputs)))


def open_vino(form, folder, inputs):
    core = openvino.Core()
    # What the file says, no more: some CPUs would round the inputs of bytes in groups of their own.
    properties = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
    compiled = core.compile_model(os.path.join(folder, "model.xml"), "CPU", properties)
    of_bytes = 0
    for layer in compiled.get_runtime_model().get_ops():
        said = layer.get_rt_info()
        kind, precision = (said[key].astype(str) if key in said else "" for key in ("layerType", "runtimePrecision"))
        of_bytes += kind == "FullyConnected" and precision in ("u8", "i8")
    # Where steps are found row by row, only the weights are bytes; of those layers it says the same.
    linears = form.counts["linears"]
    expect(of_bytes == linears, f"{of_bytes} linear layers of bytes, not {linears}")
    fed = {port: inputs[port.get_any_name()].astype(np.int32) for port in compiled.inputs}
    found = compiled(fed)
    outputs = {name: found[port] for port in compiled.outputs for name in port.get_names() if name in form.names()}
    return f"{of_bytes} linear layers of bytes, " + expect_close(form, outputs)


print(f"ONNX Runtime {onnxruntime.__version__}, OpenVINO {openvino.__version__}, NumPy {np.__version__}")
for folder, form, inputs in folders():
    for title, function in (("ONNX Runtime", onnx_runtime), ("OpenVINO", open_vino)):
        check(f"{form.name}, {title}")(lambda: function(form, folder, inputs))
finish()
