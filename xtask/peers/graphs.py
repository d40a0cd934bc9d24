"""The models of the graph peers: a table of originals, and how an engine's outputs are compared.

`goldens.py` runs the originals in TensorFlow; `graphs_*.py` have an engine each run what frazil
made of them (the table in `cases.py`). All are called with their own folder, whose neighbour
`goldens` has the wanted outputs, and the folder of originals. To add a model, add a row here."""

import dataclasses
import json
import os
import sys
import typing

import numpy as np

from report import expect

arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
WRITTEN = arguments[0]
SHARED = arguments[1] if len(arguments) > 1 else None
FULL = "--full" in sys.argv
# The one published model to run, of random weights, instead of everything small.
MODEL = next((a.removeprefix("--model=") for a in sys.argv if a.startswith("--model=")), None)
GOLDENS = os.path.join(os.path.dirname(os.path.abspath(WRITTEN)), "goldens")
if not SHARED and not MODEL:
    print("nothing to run: the originals are not here")
    sys.exit(0)

NAMES = ["input_ids", "input_mask", "segment_ids"]
INPUTS = NAMES + ["masked_lm_positions"]


def written(*parts):
    return os.path.join(WRITTEN, *parts)


def shared(*parts):
    return os.path.join(SHARED, *parts)


def goldens(*parts):
    return os.path.join(GOLDENS, *parts)


def difference(found, wanted):
    """The largest absolute difference."""
    expect(found.shape == wanted.shape, f"shape {found.shape}, not {wanted.shape}")
    expect(np.isfinite(found).all(), "not all values are finite")
    return float(np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max())


# Batches

BY_POSITION = ("sequence_output", "start_logits", "end_logits")  # axis 1 is the position
BY_PREDICTION = ("mlm_logits", "masked_lm_log_probs")  # a row for each masked position
AT_ONCE = 8


def by_row(role, value, b):
    """[b, ...]: TensorFlow joins batch and predictions in one axis."""
    return value.reshape(b, -1, value.shape[-1]) if role in BY_PREDICTION else value


def flat(role, value):
    return value.reshape(-1, value.shape[-1]) if role in BY_PREDICTION else value


def run(function, model, rows):
    """What `function` makes of rows of any batch and length, padded to what `model` has baked in."""
    b, s = rows[0].shape
    batch, length = model.batch or min(b, AT_ONCE), model.length or s
    fill = -b % batch if model.batch else 0
    # ids, mask and segments are [b, s]; the positions to predict, the fourth, are not padded along axis 1
    padded = [np.pad(array, ((0, fill), (0, length - s if i < 3 else 0))) for i, array in enumerate(rows)]
    parts = [function([array[at:at + batch] for array in padded]) for at in range(0, b, batch)]
    found = {}
    for role in parts[0]:
        value = by_row(role, np.concatenate([part[role] for part in parts]), b + fill)[:b]
        found[role] = flat(role, value[:, :s] if role in BY_POSITION else value)
    return found


# Inputs and outputs of TensorFlow 1.15


def arrays(path, inputs, outputs):
    """Those of an npz; `outputs` from what they are to their names there."""

    def read():
        npz = np.load(shared(path))
        return [npz[name] for name in inputs], {role: npz[name] for role, name in outputs.items()}

    return read


def squad(path):
    """Logits of the small SQuAD model, with the inputs out of the features."""

    def read():
        npz = np.load(shared("fixtures/squad", path))
        with open(shared("fixtures/squad/v1.1/features.json")) as f:
            features = {feature["unique_id"]: feature for feature in json.load(f)}
        rows = [features[unique_id] for unique_id in npz["unique_ids"].tolist()]
        inputs = [np.array([row[name] for row in rows], np.int32) for name in NAMES]
        return inputs, {role: npz[role] for role in SPANS}

    return read


def numerics():
    """Random weights, and outputs of all heads."""
    npz = np.load(shared("fixtures/numerics/inputs.npz"))
    outputs = {}
    for name in ("pretrain", "classifier", "squad"):
        outputs.update(np.load(shared(f"fixtures/numerics/{name}_out.npz")))
    return [npz[name] for name in INPUTS], {role: outputs[role] for role in HEADS}


def made_up(length, vocabulary):
    """Inputs only: every row has less padding than the one before, the last has none."""

    def read():
        random = np.random.default_rng(vocabulary)
        b = 8
        ids = random.integers(0, vocabulary, (b, length), np.int32)
        mask = (np.arange(length) < length * np.arange(1, b + 1)[:, None] // b).astype(np.int32)
        segments = (np.arange(length) >= length // 3).astype(np.int32) * mask
        positions = random.integers(0, length, (b, 5), np.int32)
        return [ids * mask, mask, segments, positions], None

    return read


# Outputs: from what they are to the tensor's name in the graph.
POOLED = {"pooled_output": "bert/pooler/dense/Tanh"}


def encoder(layers):
    """Outputs of an encoder: the reshapes before its last one are counted."""
    return {**POOLED, "sequence_output": f"bert/encoder/Reshape_{layers + 1}"}


ENCODER = encoder(2)
CLASSIFIER = {"probabilities": "loss/output", "logits": "loss/BiasAdd", **POOLED}
SPANS = {"start_logits": "unstack", "end_logits": "unstack:1"}
PRETRAINING = ["mlm_logits", "masked_lm_log_probs", "nsp_logits", "next_sentence_log_probs"]
HEADS = ["pooled_output", "sequence_output", "logits", "probabilities", *SPANS, *PRETRAINING]

PLACEHOLDERS = ["Placeholder", "Placeholder_1", "Placeholder_2"]


def ports(*numbers):
    return [f"IteratorGetNext:{n}" for n in numbers]


@dataclasses.dataclass
class Original:
    """A model that TensorFlow itself (or `bert.py`) runs."""

    name: str
    # frozen or meta: by TensorFlow; formula: by NumPy.
    kind: str
    # In the folder of originals, or after `@` in that of the goldens.
    file: str
    inputs: list
    outputs: dict
    # What is baked into the graph; 0 where nothing is.
    batch: int
    length: int
    # Gives inputs and outputs of TensorFlow 1.15; only inputs where it did not run.
    golden: typing.Callable
    # What TensorFlow 2 and 1.15 may differ by. They sum up in different orders: of the real model
    # both are 1e-5 from the exact result, and from each other 2.6e-5.
    rounding: float = 1e-5
    # How many rows of the golden the engines run without `--full`.
    few: int | None = None
    longest: int = 0
    heads: int = 0

    def path(self):
        return goldens(self.file[1:]) if self.file.startswith("@") else shared(self.file)

    def grid(self):
        """Batches and lengths that a dynamic export is run at."""
        longest = self.length or self.longest
        if MODEL:
            return [(1, longest), (3, 64), (8, 7)]
        if self.name == "google":
            return [(1, 7), (3, 64), (1, longest)]
        return [(b, s) for b in (1, 3, 8) for s in (7, 64, longest)]


ORIGINALS = [
    Original("classifier", "frozen", "fixtures/classifier/frozen_from_saved_model.pb",
             [f"{name}_1" for name in NAMES], CLASSIFIER, 1, 128,
             arrays("fixtures/classifier/test_set_io.npz", NAMES, {
                 "probabilities": "probabilities_frozen", "logits": "logits_frozen", "pooled_output": "pooled_frozen"})),
    Original("meta", "meta", "fixtures/meta/bert_model.ckpt.meta", PLACEHOLDERS, ENCODER, 4, 128,
             arrays("fixtures/meta/bert_model.ckpt.io.npz", PLACEHOLDERS, {
                 "pooled_output": "pooled", "sequence_output": "sequence_output"})),
    Original("reshapable", "frozen", "fixtures/reshapable/inference_graph.pb", ports(0, 1, 4), POOLED, 0, 128,
             arrays("fixtures/reshapable/io.npz", NAMES, {"pooled_output": "pooled_b5"})),
    Original("squad", "frozen", "fixtures/squad/lpot/bert_fp32_google_modeling.pb", ports(0, 1, 2), SPANS, 0, 128,
             squad("v1.1/raw_logits.npz")),
    Original("squad_intel", "frozen", "fixtures/squad/lpot/bert_fp32_intel_modeling.pb", ports(0, 1, 2), SPANS, 0, 128,
             squad("lpot/outputs_intel.npz")),
    Original("numerics", "formula", "fixtures/numerics/model.ckpt", INPUTS, dict.fromkeys(HEADS), 0, 0,
             numerics, longest=128, heads=4),
    Original("minilm", "frozen", "@rebuilt/frozen_squad.pb", NAMES, SPANS, 0, 384,
             arrays("models/squad/golden/first64_io.npz", NAMES, {role: role for role in SPANS}), rounding=5e-5, few=16),
    # Google's own MetaGraph, erf GELU; its values are ours.
    Original("google", "meta", "@google/bert_model.ckpt.meta", PLACEHOLDERS,
             encoder(12), 1, 128, made_up(128, 21128)),
]


def published_config():
    """The configuration of the model of `--model`."""
    with open(goldens(MODEL, "bert_config.json")) as f:
        return json.load(f)


def published():
    """The model of `--model`: a bare checkpoint beside its config."""
    config = published_config()
    return Original(MODEL, "formula", f"@{MODEL}/bert_model.ckpt", INPUTS,
                    dict.fromkeys(["pooled_output", "sequence_output", *PRETRAINING]), 0, 0,
                    made_up(config["max_position_embeddings"], config["vocab_size"]),
                    rounding=5e-5, longest=config["max_position_embeddings"], heads=config["num_attention_heads"])


def chosen_originals():
    """Those of this run."""
    return [published()] if MODEL else ORIGINALS
