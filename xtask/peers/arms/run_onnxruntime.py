"""ONNX Runtime, on the ONNX of `bert_onnx.py`, after its own transformer optimizer; int8 by dynamic
quantization of the linear layers.

usage: run_onnxruntime.py f32|int8 FOLDER THREADS"""

from arm import serve

import onnxruntime
from onnxruntime.quantization import QuantType, quantize_dynamic


class OnnxRuntime:
    version = onnxruntime.__version__

    def __init__(self, setup):
        self.threads = setup.threads
        optimized = setup.made(f"onnxruntime-{self.version}.onnx", lambda path: optimize(setup, path))
        self.path = optimized
        if setup.precision == "int8":
            self.path = setup.made(f"onnxruntime-{self.version}-int8.onnx", lambda path: quantize(optimized, path))

    def load(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        # Threads spin while a run lasts, as they do by default; not after it.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self.session = onnxruntime.InferenceSession(self.path, options, providers=["CPUExecutionProvider"])
        self.names = [put.name for put in self.session.get_inputs()]
        self.about = {"kernels": kinds(self.path)}

    def feed(self, inputs):
        return {name: inputs[name] for name in self.names}

    def run(self, fed):
        return self.session.run(["start_logits", "end_logits"], fed)


def optimize(setup, path):
    from onnxruntime.transformers import optimizer
    from onnxruntime.transformers.fusion_options import FusionOptions

    model = optimizer.optimize_model(
        setup.path("model.onnx"), model_type="bert",
        num_heads=setup.config["num_attention_heads"], hidden_size=setup.config["hidden_size"],
        optimization_options=FusionOptions("bert"), opt_level=0, use_gpu=False)
    model.save_model_to_file(path)


def quantize(source, path):
    quantize_dynamic(source, path, weight_type=QuantType.QInt8, per_channel=True,
                     op_types_to_quantize=["MatMul", "Attention", "Gemm"],
                     extra_options={"MatMulConstBOnly": True, "DefaultTensorType": 1})


def kinds(path):
    """How many nodes of the kinds that matter the file has."""
    import onnx

    wanted = ("Attention", "QAttention", "MultiHeadAttention", "SkipLayerNormalization", "LayerNormalization",
              "FastGelu", "Gelu", "BiasGelu", "MatMul", "Gemm", "DynamicQuantizeMatMul", "MatMulInteger", "Softmax")
    found = {}
    for node in onnx.load(path, load_external_data=False).graph.node:
        if node.op_type in wanted:
            found[node.op_type] = found.get(node.op_type, 0) + 1
    return [f"{kind} {count}" for kind, count in sorted(found.items())]


serve(OnnxRuntime)
