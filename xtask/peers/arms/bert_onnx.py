"""Writes BERT with a SQuAD head as ONNX, the way PyTorch's exporter lays it out: rows stay [b, s, h], and
the optimizers of ONNX Runtime and OpenVINO know every pattern. They fuse less of the graph that the original
TensorFlow code makes, and a peer is to be measured at its best.

usage: bert_onnx.py FOLDER    (huggingface/model.safetensors and bert_config.json -> model.onnx)"""

import json
import math
import os
import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save
from safetensors.numpy import load_file

EPSILON = 1e-12


class Writer:
    """Nodes and constants as they come; a node's first output has its name."""

    def __init__(self, weights):
        self.weights, self.nodes, self.constants = weights, [], {}

    def node(self, kind, name, *inputs, **attributes):
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, name, value, dtype=np.float32):
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.asarray(value, dtype), name)
        return name

    def weight(self, name, transposed=False):
        value = self.weights[name]
        return self.constant(name, np.ascontiguousarray(value.T) if transposed else value)

    def linear(self, name, x):
        product = self.node("MatMul", f"{name}/MatMul", x, self.weight(f"{name}.weight", transposed=True))
        return self.node("Add", f"{name}/Add", self.weight(f"{name}.bias"), product)

    def norm(self, name, x):
        return self.node("LayerNormalization", f"{name}/LayerNorm", x, self.weight(f"{name}.LayerNorm.weight"),
                         self.weight(f"{name}.LayerNorm.bias"), axis=-1, epsilon=EPSILON)

    def gelu(self, name, x):
        """0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))"""
        cube = self.node("Pow", f"{name}/Pow", x, self.constant("three", 3.0))
        part = self.node("Mul", f"{name}/Mul", cube, self.constant("gelu_cube", 0.044715))
        inner = self.node("Add", f"{name}/Add_1", x, part)
        scaled = self.node("Mul", f"{name}/Mul_1", inner, self.constant("gelu_scale", math.sqrt(2 / math.pi)))
        tanh = self.node("Tanh", f"{name}/Tanh", scaled)
        one = self.node("Add", f"{name}/Add_2", tanh, self.constant("one", 1.0))
        half = self.node("Mul", f"{name}/Mul_2", x, self.constant("half", 0.5))
        return self.node("Mul", f"{name}/Mul_3", half, one)


def build(config, weights):
    """The model of a configuration and transformers' names of weights."""
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    w = Writer(weights)
    i64 = np.int64
    # [b, s] -> [1, s]: positions, by slicing a constant as transformers does.
    shape = w.node("Shape", "shape", "input_ids")
    seq = w.node("Unsqueeze", "seq", w.node("Gather", "seq_scalar", shape, w.constant("index_1", 1, i64), axis=0),
                 w.constant("axis_0", [0], i64))
    positions = w.constant("position_ids", np.arange(config["max_position_embeddings"])[None], i64)
    positions = w.node("Slice", "positions", positions, w.constant("axis_0", [0], i64), seq, w.constant("axis_1", [1], i64))
    table = "bert.embeddings.{}_embeddings.weight".format
    words = w.node("Gather", "words", w.weight(table("word")), "input_ids", axis=0)
    segments = w.node("Gather", "segments", w.weight(table("token_type")), "segment_ids", axis=0)
    placed = w.node("Gather", "places", w.weight(table("position")), positions, axis=0)
    x = w.node("Add", "embedded", w.node("Add", "words_and_segments", words, segments), placed)
    x = w.norm("bert.embeddings", x)
    # [b, s] -> [b, 1, 1, s]: 0 for tokens, -10000 for padding.
    mask = w.node("Unsqueeze", "mask_1", "input_mask", w.constant("axis_1", [1], i64))
    mask = w.node("Unsqueeze", "mask_2", mask, w.constant("axis_2", [2], i64))
    mask = w.node("Cast", "mask_float", mask, to=TensorProto.FLOAT)
    mask = w.node("Sub", "mask_inverse", w.constant("one", 1.0), mask)
    mask = w.node("Mul", "mask", mask, w.constant("mask_scale", -10000.0))
    split = w.constant("split", [0, 0, heads, hidden // heads], i64)
    joined = w.constant("joined", [0, 0, hidden], i64)
    for layer in range(config["num_hidden_layers"]):
        name = f"bert.encoder.layer.{layer}"
        attention = f"{name}.attention.self"

        def part(which, order):
            rows = w.linear(f"{attention}.{which}", x)
            rows = w.node("Reshape", f"{attention}.{which}/Reshape", rows, split)
            return w.node("Transpose", f"{attention}.{which}/Transpose", rows, perm=order)

        query, value = part("query", [0, 2, 1, 3]), part("value", [0, 2, 1, 3])
        key = part("key", [0, 2, 3, 1])
        scores = w.node("MatMul", f"{attention}/scores", query, key)
        scores = w.node("Div", f"{attention}/scaled", scores, w.constant("head_scale", math.sqrt(hidden // heads)))
        scores = w.node("Add", f"{attention}/masked", scores, mask)
        weights_ = w.node("Softmax", f"{attention}/Softmax", scores, axis=-1)
        context = w.node("MatMul", f"{attention}/context", weights_, value)
        context = w.node("Transpose", f"{attention}/Transpose", context, perm=[0, 2, 1, 3])
        context = w.node("Reshape", f"{attention}/Reshape", context, joined)
        after = w.linear(f"{name}.attention.output.dense", context)
        x = w.norm(f"{name}.attention.output", w.node("Add", f"{name}.attention.output/Add", after, x))
        inner = w.gelu(f"{name}.intermediate/gelu", w.linear(f"{name}.intermediate.dense", x))
        after = w.linear(f"{name}.output.dense", inner)
        x = w.norm(f"{name}.output", w.node("Add", f"{name}.output/Add", after, x))
    both = w.linear("qa_outputs", x)  # [b, s, 2]
    axis = w.constant("axis_2", [2], i64)
    w.nodes.append(helper.make_node("Split", [both, w.constant("each", [1, 1], i64)], ["start", "end"], axis=2))
    for end in ("start", "end"):
        w.node("Squeeze", f"{end}_logits", end, axis)
    put = helper.make_tensor_value_info
    inputs = [put(name, TensorProto.INT32, ["batch", "seq"]) for name in ("input_ids", "input_mask", "segment_ids")]
    outputs = [put(name, TensorProto.FLOAT, ["batch", "seq"]) for name in ("start_logits", "end_logits")]
    graph = helper.make_graph(w.nodes, "bert", inputs, outputs, list(w.constants.values()))
    # The optimizers look for patterns of PyTorch's exporter, and warn if it is another.
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="pytorch")


def main(folder):
    with open(os.path.join(folder, "bert_config.json")) as file:
        config = json.load(file)
    model = build(config, load_file(os.path.join(folder, "huggingface", "model.safetensors")))
    path = os.path.join(folder, "model.onnx")
    save(model, f"{path}.unfinished")
    os.replace(f"{path}.unfinished", path)


if __name__ == "__main__":
    main(sys.argv[1])
