"""The original's side of `cargo xtask bench squad`.

features ORIGINAL DATA VOCAB ROUNDS   {"read": […], "build": […], "questions", "features", "sum"}:
                                      DATA read and made into features ROUNDS times by the
                                      run_squad.py in the folder ORIGINAL
info                                  version and the time

run_squad.py imports TensorFlow, but reading and building use only its files, flags and log. Those
are stood in for here, so that any Python can run it; the log goes nowhere, which only helps it."""

import json
import platform
import sys
import time
from types import ModuleType, SimpleNamespace


def stand_ins():
    """`tensorflow` and the modules beside run_squad.py that need all of it."""
    values = SimpleNamespace()

    def define(name, default, _help=None):
        setattr(values, name, default)

    def open_text(path, mode="r"):
        return open(path, mode, encoding="utf-8")

    tensorflow = ModuleType("tensorflow")
    tensorflow.flags = SimpleNamespace(FLAGS=values, DEFINE_string=define, DEFINE_bool=define,
                                       DEFINE_integer=define, DEFINE_float=define)
    tensorflow.gfile = SimpleNamespace(Open=open_text, GFile=open_text)
    tensorflow.logging = SimpleNamespace(info=lambda *_: None, warning=lambda *_: None)
    six = ModuleType("six")
    six.PY2, six.PY3 = False, True
    six.iteritems = lambda mapping: iter(mapping.items())
    sys.modules.update(tensorflow=tensorflow, six=six, modeling=ModuleType("modeling"),
                       optimization=ModuleType("optimization"))


def features(original, data, vocab, rounds):
    stand_ins()
    sys.path.insert(0, original)
    import run_squad
    import tokenization
    tokenizer = tokenization.FullTokenizer(vocab_file=vocab, do_lower_case=True)
    read, build = [], []
    for _ in range(int(rounds)):
        start = time.perf_counter()
        examples = run_squad.read_squad_examples(data, is_training=False)
        read.append(time.perf_counter() - start)
        built = []
        start = time.perf_counter()
        run_squad.convert_examples_to_features(
            examples=examples, tokenizer=tokenizer, max_seq_length=384, doc_stride=128,
            max_query_length=64, is_training=False, output_fn=built.append)
        build.append(time.perf_counter() - start)
    total = sum(place * i for f in built for place, i in enumerate(f.input_ids, 1))
    print(json.dumps({"read": read, "build": build, "questions": len(examples),
                      "features": len(built), "sum": total}))


def info():
    print(json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                      "python": platform.python_version()}))


{"features": features, "info": info}[sys.argv[1]](*sys.argv[2:])
