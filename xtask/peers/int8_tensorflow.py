"""TensorFlow runs models in bytes that frazil wrote, with its own fake quantization, and agrees with it.

usage: int8_tensorflow.py WRITTEN [SHARED] [--full]"""

import os

import numpy as np
import tensorflow as tf

from bytes_of import expect_close, finish, folders
from report import check, expect
from tf1 import imported, read_graph, session, tensor, v1


def frozen(form, folder, inputs):
    graph_def = read_graph(os.path.join(folder, "model.pb"))
    kinds = [node.op for node in graph_def.node]
    steps = kinds.count("FakeQuantWithMinMaxArgs")
    expect(bool(steps) != form.counts["rows"], f"{steps} nodes of fake quantization")
    bytes_of_weights = [n for n in graph_def.node if n.op == "Const" and n.attr["dtype"].type == tf.int8.as_datatype_enum]
    expect(len(bytes_of_weights) >= form.counts["linears"], f"{len(bytes_of_weights)} weights of bytes")
    names = {"start_logits": "unstack:0", "end_logits": "unstack:1"}
    with session(imported(graph_def)) as running:
        outputs = running.run(names, {tensor(name): array for name, array in inputs.items()})
    found = {name: outputs[name] for name in form.names()}
    return f"{steps} fake quantizations, " + expect_close(form, found)


def saved_model(form, folder, inputs):
    with tf.Graph().as_default(), session() as running:
        meta = v1.saved_model.loader.load(running, ["serve"], os.path.join(folder, "saved_model"))
        signature = meta.signature_def["serving_default"]
        fed = {info.name: inputs[name] for name, info in signature.inputs.items()}
        outputs = running.run({name: info.name for name, info in signature.outputs.items()}, fed)
    return expect_close(form, outputs)


print(f"TensorFlow {tf.__version__}, NumPy {np.__version__}")
for folder, form, inputs in folders():
    for title, function in (("frozen graph", frozen), ("SavedModel", saved_model)):
        check(f"{form.name}, {title}")(lambda: function(form, folder, inputs))
finish()
