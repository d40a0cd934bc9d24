"""What the peers of Hugging Face's transformers share, whichever library computes: how a model is
loaded, what its outputs are called, and the tokenizer."""

import json
import logging
import os
import re
import warnings

import numpy as np
import transformers

import bert
import sentences
from cases import cases, each, flags, frazil, judge
from graphs import SHARED, shared
from report import expect

TOLERANCE = 5e-5
# What they also say as a warning: that they are old, and that all is well.
NO_WARNING = re.compile("classes are deprecated and will be removed|^All (PyTorch model|the) weights ")
transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.disable_default_handler()


class Said(logging.Handler):
    """Everything that transformers log."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def loaded(name, folder, **more):
    """The model, if it loads without a missing or unexpected weight, and without a warning."""
    said = Said()
    logger = logging.getLogger("transformers")
    logger.addHandler(said)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            kind = getattr(transformers, name)
            model, info = kind.from_pretrained(folder, output_loading_info=True, **more)
    finally:
        logger.removeHandler(said)
    for what, found in info.items():
        expect(not found, f"{what}: {sorted(map(str, found))[:4]}")
    lines = said.lines + [str(w.message) for w in caught]
    lines = [line for line in lines if not NO_WARNING.search(line)]
    expect(not lines, f"it warns: {lines[:2]}")
    return model


# From an output of ours to one of theirs; they give the logits of every position.
THEIRS = {
    "sequence_output": lambda out, _: out("last_hidden_state"),
    "pooled_output": lambda out, _: out("pooler_output"),
    "logits": lambda out, _: out("logits"),
    "probabilities": lambda out, _: bert.softmax(out("logits")),
    "start_logits": lambda out, _: out("start_logits"),
    "end_logits": lambda out, _: out("end_logits"),
    "masked_lm_log_probs": lambda out, positions: bert.log_softmax(at(out("prediction_logits"), positions)),
    "next_sentence_log_probs": lambda out, _: bert.log_softmax(out("seq_relationship_logits")),
}


def at(logits, positions):
    """[b, s, v] to [b * p, v]."""
    return np.take_along_axis(logits, positions[:, :, None], 1).reshape(-1, logits.shape[-1])


def compare(title, load, call):
    """A check for every case that has a class. `load` gets the class's name and the folder; `call`
    gets the model and named arrays, and returns the outputs, whose attributes have `numpy()`."""

    def converted(case, folder):
        to = os.path.join(folder, "model")
        frazil("convert", case.path(), "--to", "huggingface", "-o", to, *flags(case))
        model = load(case.huggingface, to)

        def run(rows):
            ids, mask, segments, *positions = [array.astype(np.int64) for array in rows]
            found = call(model, input_ids=ids, attention_mask=mask, token_type_ids=segments)

            def out(name):
                return getattr(found, name).numpy().astype(np.float64)

            return {role: THEIRS[role](out, *positions or [None]) for role in case.outputs}

        told = judge(case, run, TOLERANCE) + tokenizer(to)
        if case.huggingface == "BertModel":
            told += sentences.vectors(to, load, call)
        return told

    each(title, converted, [case for case in cases() if case.huggingface])


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
