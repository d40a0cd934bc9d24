"""TensorFlow, on the frozen graph that frazil wrote.

usage: run_tensorflow.py f32 FOLDER THREADS"""

from arm import serve

import tensorflow as tf

v1 = tf.compat.v1


class TensorFlow:
    version = tf.__version__

    def __init__(self, setup):
        if setup.precision != "f32":
            raise SystemExit("TensorFlow is run with f32 only")
        self.setup = setup

    def load(self):
        definition = v1.GraphDef()
        with open(self.setup.path("frozen.pb"), "rb") as file:
            definition.ParseFromString(file.read())
        graph = tf.Graph()
        with graph.as_default():
            v1.import_graph_def(definition, name="")
        config = v1.ConfigProto(intra_op_parallelism_threads=self.setup.threads, inter_op_parallelism_threads=1)
        self.session = v1.Session(graph=graph, config=config)
        self.outputs = ["unstack:0", "unstack:1"]

    def feed(self, inputs):
        return {f"{name}:0": values for name, values in inputs.items()}

    def run(self, fed):
        return self.session.run(self.outputs, fed)


serve(TensorFlow)
