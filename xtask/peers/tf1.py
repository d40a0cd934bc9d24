"""Graphs of TensorFlow 1 in TensorFlow 2."""

import tensorflow as tf

v1 = tf.compat.v1
tf.get_logger().setLevel("ERROR")  # all of TensorFlow 1 is deprecated: that is why we are here


def session(graph=None):
    """A session that runs the graph as it is written. TensorFlow's own optimizer would rewrite two
    equal graphs differently, if one has its sizes baked in: 1e-5 on the real model's logits."""
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return v1.Session(graph=graph, config=config)


def read_graph(path):
    """A frozen graph's message."""
    with open(path, "rb") as f:
        return v1.GraphDef.FromString(f.read())


def imported(graph_def):
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(graph_def, name="")
    return graph


def tensor(name):
    """A node's first output, if the name does not say which."""
    return name if ":" in name else f"{name}:0"
