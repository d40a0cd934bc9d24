"""TensorFlow runs the frozen graphs and SavedModels that frazil wrote.

usage: graphs_tensorflow.py WRITTEN [SHARED] [--full] [--model=NAME]"""

import os

import numpy as np
import tensorflow as tf

from cases import canonical, each, feeds, flags, frazil, judge, small
from report import expect, finish
from tf1 import imported, read_graph, session, tensor, v1

TOLERANCE = 1e-5


def compared(case, running, inputs, outputs):
    """Against the golden, within what two versions of TensorFlow differ by; against the original in
    this TensorFlow, within the tolerance."""

    def function(rows):
        return running.run(outputs, {inputs[name]: array for name, array in feeds(case, inputs, rows).items()})

    original = case.original()
    here = None if original.kind == "formula" else TOLERANCE
    return judge(case, function, max(TOLERANCE, original.rounding), here)


def frozen(command):
    def function(case, folder):
        path = os.path.join(folder, "frozen.pb")
        frazil(*command, case.path(), "-o", path, *flags(case))
        graph_def = read_graph(path)
        variables = [n.name for n in graph_def.node if n.op in ("VariableV2", "Variable", "VarHandleOp")]
        expect(not variables, f"variables are left: {variables[:3]}")
        inputs = {n.name: f"{n.name}:0" for n in graph_def.node if n.op == "Placeholder"}
        outputs = {role: tensor(name) for role, name in case.outputs.items()}
        with session(imported(graph_def)) as running:
            return compared(case, running, inputs, outputs)

    return function


def saved_model(case, folder):
    frazil("convert", case.path(), "--to", "saved-model", "-o", os.path.join(folder, "saved"), *flags(case))
    with tf.Graph().as_default(), session() as running:
        meta = v1.saved_model.loader.load(running, ["serve"], os.path.join(folder, "saved"))
        signature = meta.signature_def["serving_default"]
        inputs = {name: info.name for name, info in signature.inputs.items()}
        outputs = {}
        for role, name in case.outputs.items():
            [info] = [i for key, i in signature.outputs.items() if canonical(key) in (canonical(name), role)]
            outputs[role] = info.name
        return compared(case, running, inputs, outputs)


print(f"TensorFlow {tf.__version__}, NumPy {np.__version__}")
each("frozen", frozen(["freeze"]))
each("converted to a frozen graph", frozen(["convert", "--to", "tf"]), small())
each("converted to a SavedModel", saved_model)
finish()
