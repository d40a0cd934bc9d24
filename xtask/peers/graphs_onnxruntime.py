"""ONNX's checker accepts, and ONNX Runtime runs, the models that frazil wrote.

usage: graphs_onnxruntime.py WRITTEN [SHARED] [--full] [--model=NAME]"""

import os

import numpy as np
import onnx
import onnxruntime

from cases import chosen, each, feeds, flags, frazil, judge, small
from graphs import MODEL
from report import expect, finish

TOLERANCE = 5e-5
TYPES = {"tensor(int32)": np.int32, "tensor(int64)": np.int64}


def converted(*more):
    def function(case, folder):
        path = os.path.join(folder, "model.onnx")
        frazil("convert", case.path(), "--to", "onnx", "-o", path, *flags(case), *more)
        checked(case, path)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 2
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        types = {i.name: TYPES[i.type] for i in session.get_inputs()}
        names = [output.name for output in session.get_outputs()]
        outputs = [chosen(names, role, name) for role, name in case.outputs.items()]

        def run(rows):
            fed = {name: array.astype(types[name]) for name, array in feeds(case, types, rows).items()}
            return dict(zip(case.outputs, session.run(outputs, fed)))

        return judge(case, run, TOLERANCE)

    return function


def checked(case, path):
    """The checker with all its checks, strict shape inference, and the names of free axes."""
    onnx.checker.check_model(path, full_check=True)
    if not MODEL:
        onnx.shape_inference.infer_shapes(onnx.load(path), check_type=True, strict_mode=True, data_prop=True)
    model = onnx.load(path, load_external_data=False)
    axes = ["batch" if not case.batch else case.batch, "sequence" if not case.length else case.length]
    for value in model.graph.input:
        found = [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
        wanted = axes if "positions" not in value.name else [axes[0], found[1]]
        expect(found == wanted, f"input `{value.name}` is {found}, not {wanted}")


print(f"ONNX {onnx.__version__}, ONNX Runtime {onnxruntime.__version__}, NumPy {np.__version__}")
each("ONNX", converted())
each("ONNX, unfused", converted("--fuse=false"), small())
each("ONNX, opset 20", converted("--opset", "20"), small())
finish()
