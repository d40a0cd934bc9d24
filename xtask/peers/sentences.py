"""Vectors by the formulas of sentence-transformers, from rows that transformers computed, against those
of `frazil predict embed` for the same folder: its poolings, its modules, the exact GELU, and
another epsilon."""

import json
import os
import shutil

import numpy as np
import transformers

from cases import frazil
from graphs import difference
from report import expect

# Numbers of a vector, which are at most 1 where it is normalised and a few where it is not.
TOLERANCE = 5e-5
TEXTS = [
    "The water is cold.",
    "query: how is it cold?",
    "",
    "Zurich, the city at the river, where the ice melts and nobody knows what the water is for. " * 4,
]
LENGTH = 40  # shorter than the last text


def mean(rows, mask):
    return (rows * mask).sum(1) / np.maximum(mask.sum(1), 1e-9)


def largest(rows, mask):
    return np.where(mask == 0, -1e9, rows).max(1)


def weighted(rows, mask):
    weights = mask * np.arange(1, rows.shape[1] + 1)[None, :, None]
    return (rows * weights).sum(1) / np.maximum(weights.sum(1), 1e-9)


# The key in `1_Pooling/config.json`, and what it means for rows [b, s, h] and a mask [b, s, 1].
POOLINGS = {
    "pooling_mode_cls_token": lambda rows, mask: rows[:, 0],
    "pooling_mode_max_tokens": largest,
    "pooling_mode_mean_tokens": mean,
    "pooling_mode_mean_sqrt_len_tokens": lambda rows, mask: (rows * mask).sum(1) / np.sqrt(mask.sum(1)),
    "pooling_mode_weightedmean_tokens": weighted,
}


def write(folder, pooling, normalize):
    """The files of sentence-transformers around a folder of transformers."""
    names = ["Transformer", "Pooling"] + ["Normalize"] * normalize
    modules = [{"idx": i, "name": str(i), "path": f"{i}_{name}" if i else "",
                "type": f"sentence_transformers.models.{name}"} for i, name in enumerate(names)]
    os.makedirs(os.path.join(folder, "1_Pooling"), exist_ok=True)
    for name, content in [
        ("modules.json", modules),
        ("1_Pooling/config.json", {"word_embedding_dimension": 64, **{key: key == pooling for key in POOLINGS}}),
        ("sentence_bert_config.json", {"max_seq_length": LENGTH, "do_lower_case": False}),
    ]:
        with open(os.path.join(folder, name), "w") as f:
            json.dump(content, f)


def vectors(model_folder, load, call):
    """Compares all poolings, normalised and not; what to say of it."""
    if not os.path.exists(os.path.join(model_folder, "vocab.txt")):
        return ""
    folder = model_folder + "-sentences"
    shutil.copytree(model_folder, folder)
    path = os.path.join(folder, "config.json")
    with open(path) as f:
        config = json.load(f)
    config.update(hidden_act="gelu", layer_norm_eps=1e-5)
    with open(path, "w") as f:
        json.dump(config, f)
    tokens = transformers.AutoTokenizer.from_pretrained(folder)
    batch = tokens(TEXTS, padding=True, truncation=True, max_length=LENGTH, return_tensors="np")
    expect(batch["input_ids"].shape[1] == LENGTH, "no text is cut")
    arrays = {name: batch[name].astype(np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}
    rows = call(load("BertModel", folder), **arrays).last_hidden_state.numpy().astype(np.float64)
    mask = arrays["attention_mask"][:, :, None].astype(np.float64)
    texts, out = os.path.join(folder, "texts.txt"), os.path.join(folder, "vectors.npy")
    with open(texts, "w") as f:
        f.writelines(text + "\n" for text in TEXTS)
    worst = 0.0
    for pooling, formula in POOLINGS.items():
        for normalize in (False, True):
            write(folder, pooling, normalize)
            frazil("predict", "embed", folder, "--file", texts, "-o", out, "--quiet")
            wanted = formula(rows, mask)
            if normalize:
                wanted = wanted / np.maximum(np.linalg.norm(wanted, axis=1, keepdims=True), 1e-12)
            apart = difference(np.load(out), wanted)
            expect(apart <= TOLERANCE, f"{pooling}: vectors differ by {apart:.1e}")
            worst = max(worst, apart)
    return f", {len(POOLINGS)} poolings within {worst:.1e}"
