"""What the graph peers have frazil convert: a table of sources and flags, and how a result is judged.

A case is converted to every target, each engine runs it at every batch and length it allows, and
the outputs are compared with the goldens. To add a case, add a row to `CASES`."""

import dataclasses
import glob
import os
import re
import shutil
import subprocess

import numpy as np

from graphs import (ENCODER, FULL, INPUTS, MODEL, NAMES, PLACEHOLDERS, POOLED, SPANS, by_row, chosen_originals,
                    difference, encoder, flat, goldens, ports, published_config, run, shared, written)
from report import check, expect

FRAZIL = os.environ["FRAZIL"]
DYNAMIC = ["--batch", "dynamic", "--seq", "dynamic"]


@dataclasses.dataclass
class Case:
    name: str
    # The wanted outputs, by the original's name.
    golden: str
    # In the folder of originals, or after `@` in that of the goldens, after `+` in our own.
    source: str
    flags: list
    # Ids, mask, segments (and positions), by the source's names.
    inputs: list
    # From what it is to the source's name.
    outputs: dict
    # What is baked in after the conversion; 0 where nothing is.
    batch: int = 0
    length: int = 0
    # The class of `transformers` that is to load it.
    huggingface: str = ""
    # Also on all rows that TensorFlow 1.15 was given.
    thorough: bool = True

    def path(self):
        folder = {"@": goldens, "+": written}.get(self.source[0], shared)
        pattern = folder(self.source.lstrip("@+"))
        return glob.glob(pattern)[0] if "*" in pattern else pattern

    def original(self):
        [original] = [o for o in chosen_originals() if o.name == self.golden]
        return original

    def samples(self):
        """Name, inputs, wanted outputs, and what TensorFlow 2 makes of the original."""
        original = self.original()
        names = [f"{b}x{s}" for b, s in original.grid() if self.length in (0, s)]
        if self.thorough and os.path.exists(goldens(self.golden, "golden.npz")):
            names.insert(0, "golden")
        expect(names, "nothing to run")
        for name in names:
            npz = np.load(goldens(self.golden, f"{name}.npz"))
            few = slice(None if FULL or name != "golden" else original.few)

            def outputs(prefix=""):
                values = {role: by_row(role, npz[prefix + role], len(npz["input_ids"])) for role in self.outputs}
                return {role: flat(role, value[few]) for role, value in values.items()}

            yield name, [npz[role][few] for role in INPUTS if role in npz], outputs(), outputs("here/")


def head(name, roles, source, config, golden, which, huggingface, nodes=None, **more):
    """A bare checkpoint with one of its heads; `nodes` if they are not those of `BARE`."""
    inputs = INPUTS if which == "pretraining" else NAMES
    flags = ["--config", config, "--head", which] if config else ["--head", which]
    outputs = {role: (nodes or BARE)[role] for role in roles}
    return Case(name, golden, source, flags, inputs, outputs, huggingface=huggingface, **more)


# The node of each output in the graph that frazil builds from a checkpoint, which is the original's.
BARE = {
    **ENCODER, **SPANS,
    "logits": "loss/BiasAdd",
    "probabilities": "loss/Softmax",
    "mlm_logits": "cls/predictions/BiasAdd",
    "masked_lm_log_probs": "cls/predictions/LogSoftmax",
    "nsp_logits": "cls/seq_relationship/BiasAdd",
    "next_sentence_log_probs": "cls/seq_relationship/LogSoftmax",
}
SMALL = "%fixtures/data/bert_config_small.json"
ONES = [f"{name}_1" for name in NAMES]
PROBABILITIES = {"probabilities": "loss/output"}
MORE = {"probabilities": "loss/output", "logits": "loss/BiasAdd", **POOLED}

CASES = [
    Case("classifier, SavedModel as it is", "classifier", "fixtures/classifier/saved_models/*", [],
         ONES, PROBABILITIES, batch=1, length=128),
    Case("classifier, SavedModel generalised", "classifier", "fixtures/classifier/saved_models/*", DYNAMIC,
         ONES, PROBABILITIES),
    Case("classifier, frozen graph, three outputs", "classifier", "fixtures/classifier/frozen_from_saved_model.pb",
         ["--output", "loss/output,loss/BiasAdd,bert/pooler/dense/Tanh"], ONES, MORE, batch=1, length=128),
    Case("classifier, frozen graph generalised", "classifier", "fixtures/classifier/frozen_from_saved_model.pb",
         [*DYNAMIC, "--output", "loss/output,loss/BiasAdd,bert/pooler/dense/Tanh"], ONES, MORE),
    Case("classifier, training graph generalised", "classifier", "fixtures/classifier/model.ckpt-27.meta",
         [*DYNAMIC, "--input", ",".join(ports(0, 1, 4)), "--output", "loss/output,loss/BiasAdd"],
         ports(0, 1, 4), {"probabilities": "loss/output", "logits": "loss/BiasAdd"}),
    head("classifier, bare checkpoint", ["logits", "probabilities"], "fixtures/classifier/model.ckpt-27", SMALL,
         "classifier", "classifier", "BertForSequenceClassification"),
    Case("meta, batch 4 as it is", "meta", "fixtures/meta/bert_model.ckpt.meta",
         ["--output", ",".join(ENCODER.values())], PLACEHOLDERS, ENCODER, batch=4, length=128),
    Case("meta, generalised", "meta", "fixtures/meta/bert_model.ckpt.meta",
         [*DYNAMIC, "--output", ",".join(ENCODER.values())], PLACEHOLDERS, ENCODER),
    Case("meta with free batch, as it is", "meta", "+staged/bert_model_dyn.ckpt.meta",
         ["--output", ",".join(ENCODER.values())], PLACEHOLDERS, ENCODER, length=128),
    Case("meta with free batch, generalised", "meta", "+staged/bert_model_dyn.ckpt.meta",
         [*DYNAMIC, "--output", ",".join(ENCODER.values())], PLACEHOLDERS, ENCODER),
    Case("meta of TensorFlow 1.11, batch 4 as it is", "meta", "fixtures/meta_tf111/bert_model.ckpt.meta",
         ["--output", ",".join(ENCODER.values())], PLACEHOLDERS, ENCODER, batch=4, length=128),
    Case("meta of TensorFlow 1.11, generalised", "meta", "fixtures/meta_tf111/bert_model.ckpt.meta",
         [*DYNAMIC, "--output", ",".join(ENCODER.values())], PLACEHOLDERS, ENCODER),
    head("meta, bare checkpoint", ENCODER, "fixtures/meta/bert_model.ckpt", None, "meta", "encoder", "BertModel"),
    Case("reshapable, as it is", "reshapable", "fixtures/reshapable/inference_graph.pb",
         ["--input", ",".join(ports(0, 1, 4))], ports(0, 1, 4), POOLED, length=128),
    Case("reshapable, generalised", "reshapable", "fixtures/reshapable/inference_graph.pb",
         [*DYNAMIC, "--input", ",".join(ports(0, 1, 4))], ports(0, 1, 4), POOLED),
    head("squad, bare checkpoint", SPANS, "fixtures/squad/v1.1/model.ckpt-65", SMALL, "squad", "squad",
         "BertForQuestionAnswering"),
    Case("squad, graph of LPOT", "squad", "fixtures/squad/lpot/bert_fp32_google_modeling.pb",
         [*DYNAMIC, "--input", ",".join(ports(0, 1, 2)), "--output", "unstack:0,unstack:1"], ports(0, 1, 2), SPANS),
    Case("squad, graph of LPOT with Intel's modeling", "squad_intel", "fixtures/squad/lpot/bert_fp32_intel_modeling.pb",
         [*DYNAMIC, "--input", ",".join(ports(0, 1, 2)), "--output", "unstack:0,unstack:1"], ports(0, 1, 2), SPANS),
    head("numerics, encoder", ENCODER, "fixtures/numerics/model.ckpt", SMALL, "numerics", "encoder", "BertModel"),
    head("numerics, pretraining", ["masked_lm_log_probs", "next_sentence_log_probs"], "fixtures/numerics/model.ckpt",
         SMALL, "numerics", "pretraining", "BertForPreTraining"),
    head("numerics, classifier", ["logits", "probabilities"], "fixtures/numerics/model.ckpt", SMALL,
         "numerics", "classifier", "BertForSequenceClassification"),
    head("numerics, squad", SPANS, "fixtures/numerics/model.ckpt", SMALL, "numerics", "squad", "BertForQuestionAnswering"),
    head("real model, bare checkpoint", SPANS, "models/squad/model.ckpt-2232", None, "minilm", "squad",
         "BertForQuestionAnswering"),
    Case("real model, MetaGraph generalised", "minilm", "models/squad/model.ckpt-2232.meta",
         [*DYNAMIC, "--output", "unstack:0,unstack:1"], PLACEHOLDERS, SPANS, thorough=False),
    Case("real model, frozen graph generalised", "minilm", "@rebuilt/frozen_squad.pb", DYNAMIC, NAMES, SPANS,
         thorough=False),
]
GOOGLE = [
    Case("Google's own MetaGraph, as it is", "google", "@google/bert_model.ckpt.meta",
         ["--output", POOLED["pooled_output"]], PLACEHOLDERS, POOLED, batch=1, length=128),
    Case("Google's own MetaGraph, generalised", "google", "@google/bert_model.ckpt.meta",
         [*DYNAMIC, "--output", POOLED["pooled_output"]], PLACEHOLDERS, POOLED),
]


def cases():
    """The cases of this run."""
    if MODEL:
        nodes = BARE | encoder(published_config()["num_hidden_layers"])
        return [head(f"{MODEL}, bare checkpoint, {which}", roles, f"@{MODEL}/bert_model.ckpt", None, MODEL, which, name,
                     nodes)
                for which, roles, name in [
                    ("encoder", ["pooled_output", "sequence_output"], "BertModel"),
                    ("pretraining", ["masked_lm_log_probs", "next_sentence_log_probs"], "BertForPreTraining")]]
    # The free batch's MetaGraph has no checkpoint of its own: the weights are the other's.
    os.makedirs(written("staged"), exist_ok=True)
    shutil.copy(shared("fixtures/meta/bert_model_dyn.ckpt.meta"), written("staged"))
    for end in ("index", "data-00000-of-00001"):
        shutil.copy(shared(f"fixtures/meta/bert_model.ckpt.{end}"), written(f"staged/bert_model_dyn.ckpt.{end}"))
    return CASES + GOOGLE


def small():
    """Those of this run that take no time: for variants of a conversion."""
    return [case for case in cases() if case.golden not in ("minilm", "google", MODEL)]


# Running frazil


def frazil(*words, folder=None):
    """Runs it in the folder; what it says is in the error if it fails."""
    done = subprocess.run([FRAZIL, *words], capture_output=True, text=True, cwd=folder)
    expect(done.returncode == 0, f"exit {done.returncode}: {done.stderr.strip()}: frazil {' '.join(words)}")


def flags(case):
    """The case's flags, with paths."""
    return [shared(word[1:]) if word.startswith("%") else word for word in case.flags]


# Judging


def canonical(name):
    """One spelling of a tensor's name: `node` for its first output, `node:1` for others."""
    name = re.sub(r"/placeholder_out_port_(\d+)$", r":\1", name)
    return name.removesuffix(":0")


def chosen(names, role, name):
    """Which of an engine's `names` is meant: that of the source, or what it is."""
    for wanted in (canonical(name), role):
        for found in names:
            if canonical(found) == wanted:
                return found
    raise AssertionError(f"neither `{name}` nor `{role}` is one of {sorted(names)}")


def feeds(case, names, rows):
    """The rows by the engine's names of inputs; all of them must be meant."""
    fed = {chosen(names, role, name): array for role, name, array in zip(INPUTS, case.inputs, rows)}
    expect(len(fed) == len(names), f"inputs {sorted(set(names) - set(fed))} are not the case's")
    return fed


def judge(case, function, tolerance, here=None):
    """Runs `function` (rows to outputs by role) on every sample. `here` is the tolerance against
    what TensorFlow 2 makes of the original, where that is meant."""
    worst = {}
    for name, rows, wanted, original in case.samples():
        found = run(function, case, rows)
        for role in wanted:
            d = difference(found[role], wanted[role])
            expect(d <= tolerance, f"{name}: {role} differs by {d:.2e}, more than {tolerance:.0e}")
            worst[role] = max(worst.get(role, 0.0), d)
            if here is not None:
                d = difference(found[role], original[role])
                expect(d <= here, f"{name}: {role} differs by {d:.2e} from the original in this TensorFlow")
    return ", ".join(f"{role} {d:.1e}" for role, d in worst.items())


def each(title, function, chosen_cases=None):
    """A check for every case: `function` gets the case and an empty folder of its own."""
    for case in cases() if chosen_cases is None else chosen_cases:
        folder = written("converted")

        @check(f"{case.name}, {title}")
        def _():
            os.makedirs(folder)
            return function(case, folder)

        shutil.rmtree(folder, ignore_errors=True)
