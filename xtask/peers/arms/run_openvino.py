"""OpenVINO, on the ONNX of `bert_onnx.py`; int8 by NNCF's post-training quantization for transformers.

usage: run_openvino.py f32|int8 FOLDER THREADS"""

from arm import serve

import numpy as np
import openvino

INPUTS = ("input_ids", "input_mask", "segment_ids")


class OpenVino:
    version = openvino.__version__.split("-")[0]

    def __init__(self, setup):
        self.core = openvino.Core()
        self.config = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": setup.threads,
                       "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
        self.path = setup.path("model.onnx")
        if setup.precision == "int8":
            import nncf

            self.version += f" + nncf {nncf.__version__}"
            name = f"openvino-{openvino.__version__.split('-')[0]}-nncf-{nncf.__version__}.xml"
            self.path = setup.made(name, lambda path: self.quantize(setup, path))

    def quantize(self, setup, path):
        import nncf

        model = self.core.read_model(setup.path("model.onnx"))
        samples = nncf.Dataset(list(setup.calibration()))
        quantized = nncf.quantize(model, samples, model_type=nncf.ModelType.TRANSFORMER, subset_size=16,
                                  preset=nncf.QuantizationPreset.MIXED)
        openvino.save_model(quantized, path, compress_to_fp16=False)

    def load(self):
        compiled = self.core.compile_model(self.path, "CPU", self.config)
        self.request = compiled.create_infer_request()
        self.outputs = [compiled.output(name) for name in ("start_logits", "end_logits")]
        kinds = {node.get_rt_info()["layerType"].astype(str) for node in compiled.get_runtime_model().get_ops()}
        self.about = {"kernels": sorted(kinds & {"ScaledDotProductAttention", "FullyConnected", "MatMul", "MHA", "Subgraph"})}

    def feed(self, inputs):
        return {name: np.ascontiguousarray(inputs[name]) for name in INPUTS}

    def run(self, fed):
        found = self.request.infer(fed, share_inputs=True, share_outputs=True)
        return [found[output] for output in self.outputs]


serve(OpenVino)
