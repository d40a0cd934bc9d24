"""PyTorch, eager, with plain modules of its own on the weights that frazil wrote for transformers.

usage: run_torch.py f32 FOLDER THREADS"""

from arm import serve

import torch
from safetensors.torch import load_file
from torch.nn import functional

EPSILON = 1e-12


class Torch:
    version = torch.__version__

    def __init__(self, setup):
        if setup.precision != "f32":
            raise SystemExit("PyTorch is run with f32 only")
        self.setup = setup
        self.heads = setup.config["num_attention_heads"]
        self.layers = setup.config["num_hidden_layers"]

    def load(self):
        torch.set_num_threads(self.setup.threads)
        self.weights = load_file(self.setup.path("huggingface", "model.safetensors"))
        for layer in range(self.layers):
            name = f"bert.encoder.layer.{layer}.attention.self"
            for part in ("weight", "bias"):  # One product for the three.
                parts = [self.weights.pop(f"{name}.{which}.{part}") for which in ("query", "key", "value")]
                self.weights[f"{name}.all.{part}"] = torch.cat(parts)

    def feed(self, inputs):
        return [torch.from_numpy(inputs[name]).long() for name in ("input_ids", "input_mask", "segment_ids")]

    def linear(self, x, name):
        return functional.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def norm(self, x, name):
        weight, bias = self.weights[f"{name}.LayerNorm.weight"], self.weights[f"{name}.LayerNorm.bias"]
        return functional.layer_norm(x, x.shape[-1:], weight, bias, EPSILON)

    @torch.inference_mode()
    def run(self, fed):
        ids, mask, segments = fed
        b, s = ids.shape
        w = self.weights
        x = (functional.embedding(ids, w["bert.embeddings.word_embeddings.weight"])
             + functional.embedding(segments, w["bert.embeddings.token_type_embeddings.weight"])
             + w["bert.embeddings.position_embeddings.weight"][:s])
        x = self.norm(x, "bert.embeddings")  # [b, s, h]
        # Without padding there is nothing to mask, and the kernels without a mask are faster.
        seen = None if bool(mask.all()) else mask[:, None, None, :].bool()
        for layer in range(self.layers):
            name = f"bert.encoder.layer.{layer}"
            three = self.linear(x, f"{name}.attention.self.all").view(b, s, 3, self.heads, -1)
            query, key, value = three.permute(2, 0, 3, 1, 4)  # [b, n, s, d]
            context = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
            context = context.transpose(1, 2).reshape(b, s, -1)
            x = self.norm(x + self.linear(context, f"{name}.attention.output.dense"), f"{name}.attention.output")
            inner = functional.gelu(self.linear(x, f"{name}.intermediate.dense"), approximate="tanh")
            x = self.norm(x + self.linear(inner, f"{name}.output.dense"), f"{name}.output")
        both = self.linear(x, "qa_outputs")  # [b, s, 2]
        return [both[..., 0].numpy(), both[..., 1].numpy()]


serve(Torch)
