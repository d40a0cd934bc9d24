"""Hugging Face's transformers load and run the models that frazil wrote.

usage: graphs_transformers.py WRITTEN [SHARED] [--full] [--model=NAME]"""

import json
import logging
import os
import warnings

import numpy as np
import torch
import transformers

from cases import cases, each, flags, frazil, judge
from graphs import SHARED, shared
from report import expect, finish

TOLERANCE = 5e-5
transformers.utils.logging.disable_progress_bar()
torch.set_grad_enabled(False)


class Said(logging.Handler):
    """Everything that transformers log."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def loaded(name, folder):
    """The model, if it loads without a missing or unexpected weight, and without a warning."""
    said = Said()
    logger = logging.getLogger("transformers")
    logger.addHandler(said)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            kind = getattr(transformers, name)
            # Plain attention computes what TensorFlow does, in the same order.
            model, info = kind.from_pretrained(folder, output_loading_info=True, attn_implementation="eager")
    finally:
        logger.removeHandler(said)
    for what, found in info.items():
        expect(not found, f"{what}: {sorted(map(str, found))[:4]}")
    lines = said.lines + [str(w.message) for w in caught]
    expect(not lines, f"it warns: {lines[:2]}")
    return model.eval()


# From an output of ours to one of theirs; they give the logits of every position.
THEIRS = {
    "sequence_output": lambda out, _: out.last_hidden_state,
    "pooled_output": lambda out, _: out.pooler_output,
    "logits": lambda out, _: out.logits,
    "probabilities": lambda out, _: out.logits.softmax(-1),
    "start_logits": lambda out, _: out.start_logits,
    "end_logits": lambda out, _: out.end_logits,
    "masked_lm_log_probs": lambda out, positions: at(out.prediction_logits, positions).log_softmax(-1),
    "next_sentence_log_probs": lambda out, _: out.seq_relationship_logits.log_softmax(-1),
}


def at(logits, positions):
    """[b, s, v] to [b * p, v]."""
    return torch.take_along_dim(logits, positions[:, :, None], 1).flatten(0, 1)


def converted(case, folder):
    to = os.path.join(folder, "model")
    frazil("convert", case.path(), "--to", "huggingface", "-o", to, *flags(case))
    model = loaded(case.huggingface, to)

    def run(rows):
        ids, mask, segments, *positions = [torch.from_numpy(array.astype(np.int64)) for array in rows]
        out = model(input_ids=ids, attention_mask=mask, token_type_ids=segments)
        return {role: THEIRS[role](out, *positions or [None]).numpy() for role in case.outputs}

    told = judge(case, run, TOLERANCE)
    return told + tokenizer(to)


# The vocabularies of `fixtures/tokenization`, by size.
VOCABULARIES = {838: "small_uncased_ids", 30522: "uncased_ids"}
# Of 303 texts, those that the library itself cuts up otherwise than the original code: it finds
# `[CLS]` and the like in the text, knows no final sigma, and has a newer Unicode.
OTHERWISE = 13


def tokenizer(folder):
    """The tokenizer that was written gives the word pieces of the original code."""
    if not os.path.exists(os.path.join(folder, "vocab.txt")):
        return ", no vocabulary"
    tokens = transformers.AutoTokenizer.from_pretrained(folder)
    pair = tokens("a b", "c")
    expect(pair["input_ids"][0] == tokens.cls_token_id, "a pair does not begin with [CLS]")
    expect(pair["input_ids"].count(tokens.sep_token_id) == 2, "a pair does not have two [SEP]")
    expect(pair["token_type_ids"][0] == 0 and pair["token_type_ids"][-1] == 1, "a pair does not have two segments")
    if len(tokens) not in VOCABULARIES or not SHARED:
        return f", {len(tokens)} word pieces"
    with open(shared("fixtures/tokenization/cases.json")) as f:
        texts = json.load(f)["cases"]
    tokens.model_max_length = 1000  # some texts are longer than the model takes: that is not the question here
    other = [text["text"] for text in texts
             if tokens(text["text"], add_special_tokens=False)["input_ids"] != text[VOCABULARIES[len(tokens)]]]
    expect(len(other) <= OTHERWISE, f"{len(other)} of {len(texts)} texts become other word pieces: {other[:5]}")
    return f", word pieces of {len(texts) - len(other)} of {len(texts)} texts"


print(f"transformers {transformers.__version__}, PyTorch {torch.__version__}, NumPy {np.__version__}")
each("transformers", converted, [case for case in cases() if case.huggingface])
finish()
