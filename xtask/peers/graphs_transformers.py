"""Hugging Face's transformers load and run the models that frazil wrote, with TensorFlow.

usage: graphs_transformers.py WRITTEN [SHARED] [--full] [--model=NAME]

The newest transformers compute with PyTorch only, which PyPI has for Linux with 3 GB of libraries
for a GPU: `graphs_pytorch.py` is the check with those. The last version that has a choice loads the
same files by the same names."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # transformers 4 know no other

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
import transformers  # noqa: E402

import huggingface  # noqa: E402
from report import finish  # noqa: E402


def load(name, folder):
    return huggingface.loaded(f"TF{name}", folder)


def call(model, **arrays):
    return model(**arrays, training=False)


print(f"transformers {transformers.__version__}, TensorFlow {tf.__version__}, NumPy {np.__version__}")
huggingface.compare("transformers", load, call)
finish()
