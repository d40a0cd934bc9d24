"""Hugging Face's side of `cargo xtask bench tokenize`.

speed VOCAB TEXTS ROUNDS [fast]   {"seconds": […], "pieces", "bytes"}: each line of TEXTS cut
                                  ROUNDS times; with `fast`, without offsets
info                              versions and the time

The number of threads is rayon's: RAYON_NUM_THREADS."""

import json
import platform
import sys
import time

import tokenizers
from hugging_face_words import tokenizer


def speed(vocab, texts, rounds, fast=None):
    cutter = tokenizer(vocab, lowercase=True)
    with open(texts, encoding="utf-8", newline="") as f:
        text = f.read()
    lines = text.split("\n")
    encode = cutter.encode_batch_fast if fast else cutter.encode_batch
    seconds = []
    for _ in range(int(rounds)):
        start = time.perf_counter()
        encodings = encode(lines, add_special_tokens=False)
        seconds.append(time.perf_counter() - start)
    pieces = sum(len(encoding.ids) for encoding in encodings)
    print(json.dumps({"seconds": seconds, "pieces": pieces, "bytes": len(text.encode())}))


def info():
    print(json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                      "python": platform.python_version(), "tokenizers": tokenizers.__version__}))


{"speed": speed, "info": info}[sys.argv[1]](*sys.argv[2:])
