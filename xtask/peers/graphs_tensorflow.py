"""TensorFlow runs the frozen graphs and SavedModels that frazil wrote.

usage: graphs_tensorflow.py WRITTEN [SHARED] [--full] [--model=NAME]"""

import os

import numpy as np
import tensorflow as tf

from cases import canonical, each, feeds, flags, frazil, judge
from graphs import ORIGINALS
from report import expect, finish

v1 = tf.compat.v1
tf.get_logger().setLevel("ERROR")
TOLERANCE = 1e-5


def rounding(case):
    """What TensorFlow 2 and 1.15 may differ by on the original itself."""
    return max([o.rounding for o in ORIGINALS if o.name == case.golden] + [TOLERANCE])


def compared(case, session, inputs, outputs):
    def function(rows):
        return session.run(outputs, {inputs[name]: array for name, array in feeds(case, inputs, rows).items()})

    return judge(case, function, rounding(case), here=TOLERANCE)


def frozen(command):
    def function(case, folder):
        path = os.path.join(folder, "frozen.pb")
        frazil(*command, case.path(), "-o", path, *flags(case))
        graph_def = v1.GraphDef()
        with open(path, "rb") as f:
            graph_def.ParseFromString(f.read())
        variables = [n.name for n in graph_def.node if n.op in ("VariableV2", "Variable", "VarHandleOp")]
        expect(not variables, f"variables are left: {variables[:3]}")
        graph = tf.Graph()
        with graph.as_default():
            tf.import_graph_def(graph_def, name="")
        inputs = {n.name: f"{n.name}:0" for n in graph_def.node if n.op == "Placeholder"}
        outputs = {role: name if ":" in name else f"{name}:0" for role, name in case.outputs.items()}
        with v1.Session(graph=graph) as session:
            return compared(case, session, inputs, outputs)

    return function


def saved_model(case, folder):
    frazil("convert", case.path(), "--to", "saved-model", "-o", os.path.join(folder, "saved"), *flags(case))
    with tf.Graph().as_default(), v1.Session() as session:
        meta = v1.saved_model.loader.load(session, ["serve"], os.path.join(folder, "saved"))
        signature = meta.signature_def["serving_default"]
        inputs = {name: info.name for name, info in signature.inputs.items()}
        outputs = {}
        for role, name in case.outputs.items():
            [info] = [i for key, i in signature.outputs.items() if canonical(key) in (canonical(name), role)]
            outputs[role] = info.name
        return compared(case, session, inputs, outputs)


print(f"TensorFlow {tf.__version__}, NumPy {np.__version__}")
each("frozen", frozen(["freeze"]))
each("converted to a frozen graph", frozen(["convert", "--to", "tf"]))
each("converted to a SavedModel", saved_model)
finish()
