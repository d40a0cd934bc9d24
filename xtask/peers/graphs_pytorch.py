"""The newest of Hugging Face's transformers load and run the models that frazil wrote, with PyTorch.

usage: graphs_pytorch.py WRITTEN [SHARED] [--full] [--model=NAME]"""

import numpy as np
import torch
import transformers

import huggingface
from report import finish

torch.set_grad_enabled(False)


def load(name, folder):
    # Plain attention computes what TensorFlow does, in the same order.
    return huggingface.loaded(name, folder, attn_implementation="eager").eval()


def call(model, **arrays):
    return model(**{name: torch.from_numpy(array) for name, array in arrays.items()})


print(f"transformers {transformers.__version__}, PyTorch {torch.__version__}, NumPy {np.__version__}")
huggingface.compare("PyTorch", load, call)
finish()
