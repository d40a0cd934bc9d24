"""BERT's forward pass in NumPy, float64: the reference where no graph of TensorFlow's is at hand.

Variables have the names of google-research/bert. `goldens.py` compares it with what TensorFlow 1.15
computed before anything else is compared with it."""

import numpy as np

EPSILON = 1e-12


def layer_norm(x, w, name):
    mean = x.mean(-1, keepdims=True)
    variance = np.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + EPSILON) * w[f"{name}/LayerNorm/gamma"] + w[f"{name}/LayerNorm/beta"]


def dense(x, w, name):
    return x @ w[f"{name}/kernel"] + w[f"{name}/bias"]


def gelu(x):
    """The tanh form, which is the original code's since 2019."""
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def encoder(w, heads, ids, mask, segments):
    """`sequence_output` [b, s, h] and `pooled_output` [b, h]; `w` must be float64."""
    b, s = ids.shape
    x = w["bert/embeddings/word_embeddings"][ids] + w["bert/embeddings/token_type_embeddings"][segments]
    x = layer_norm(x + w["bert/embeddings/position_embeddings"][:s], w, "bert/embeddings")  # [b, s, h]
    bias = (1.0 - mask[:, None, None, :].astype(np.float64)) * -10000.0  # [b, 1, 1, s]
    layer = 0
    while f"bert/encoder/layer_{layer}/output/dense/kernel" in w:
        name = f"bert/encoder/layer_{layer}"
        split = [dense(x, w, f"{name}/attention/self/{part}").reshape(b, s, heads, -1).transpose(0, 2, 1, 3)
                 for part in ("query", "key", "value")]
        query, key, value = split  # [b, n, s, d]
        scores = query @ key.transpose(0, 1, 3, 2) / np.sqrt(query.shape[-1]) + bias
        context = (softmax(scores) @ value).transpose(0, 2, 1, 3).reshape(b, s, -1)
        x = layer_norm(x + dense(context, w, f"{name}/attention/output/dense"), w, f"{name}/attention/output")
        inner = gelu(dense(x, w, f"{name}/intermediate/dense"))  # [b, s, f]
        x = layer_norm(x + dense(inner, w, f"{name}/output/dense"), w, f"{name}/output")
        layer += 1
    return x, np.tanh(dense(x[:, 0], w, "bert/pooler/dense"))


def outputs(w, heads, ids, mask, segments, positions=None):
    """Every output that the variables allow, by the names of `graphs.py`, as float32."""
    x, pooled = encoder(w, heads, ids, mask, segments)
    found = {"sequence_output": x, "pooled_output": pooled}
    if positions is not None and "cls/predictions/output_bias" in w:
        rows = np.take_along_axis(x, positions[:, :, None], 1).reshape(-1, x.shape[-1])
        rows = layer_norm(gelu(dense(rows, w, "cls/predictions/transform/dense")), w, "cls/predictions/transform")
        found["mlm_logits"] = rows @ w["bert/embeddings/word_embeddings"].T + w["cls/predictions/output_bias"]
        found["masked_lm_log_probs"] = log_softmax(found["mlm_logits"])
    if "cls/seq_relationship/output_weights" in w:
        found["nsp_logits"] = pooled @ w["cls/seq_relationship/output_weights"].T + w["cls/seq_relationship/output_bias"]
        found["next_sentence_log_probs"] = log_softmax(found["nsp_logits"])
    if "output_weights" in w:
        found["logits"] = pooled @ w["output_weights"].T + w["output_bias"]
        found["probabilities"] = softmax(found["logits"])
    if "cls/squad/output_weights" in w:
        both = x @ w["cls/squad/output_weights"].T + w["cls/squad/output_bias"]  # [b, s, 2]
        found["start_logits"], found["end_logits"] = both[..., 0], both[..., 1]
    return {name: value.astype(np.float32) for name, value in found.items()}
