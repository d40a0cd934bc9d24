"""PyTorch's side of `cargo xtask bench train`: fine-tuning of transformers' BERT with AdamW, eager, float32.

usage: bench_train.py info
       bench_train.py FOLDER THREADS

FOLDER is a model as frazil wrote it for transformers. A line of JSON on stdin asks for something, a line on stdout
answers. `{"batches": [[LENGTH, ...], ...], "pad": S}` takes a step on each batch, padded to S, and gives the seconds of
each; with `"check": true` it gives loss and norm of the gradients of the first batch instead, without dropout.
`crates/frazil-train/examples/step_rounds.rs` answers the same for frazil."""

import json
import os
import sys
import time

THREADS = sys.argv[2] if len(sys.argv) > 2 else "1"
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = THREADS
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

# As in the example.
RATE, CLIP = 1e-5, 1.0


def batch(lengths, pad, vocabulary):
    """Tensors [b, s]; the same ids as frazil's."""
    shape = (len(lengths), pad)
    ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for row, length in enumerate(lengths):
        places = np.arange(length, dtype=np.int64)
        ids[row, :length] = (places * 7919 + row * 104_729 + length) % vocabulary
        mask[row, :length] = 1
    labels = np.arange(len(lengths)) % 2
    fed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros(shape, np.int64), "labels": labels}
    return {name: torch.from_numpy(values) for name, values in fed.items()}


class Training:
    def __init__(self, folder):
        torch.manual_seed(1)
        torch.set_num_threads(int(THREADS))
        self.model = transformers.BertForSequenceClassification.from_pretrained(folder, attn_implementation="sdpa")
        self.model.float()
        plain = [p for n, p in self.model.named_parameters() if p.ndim > 1]
        others = [p for n, p in self.model.named_parameters() if p.ndim <= 1]
        groups = [{"params": plain, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
        # One kernel for all weights: the fastest that PyTorch has.
        self.optimizer = torch.optim.AdamW(groups, lr=RATE, eps=1e-8, fused=True)

    def gradients(self, fed):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(**fed).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        return loss.item(), norm.item()

    def check(self, fed):
        self.model.eval()
        loss, norm = self.gradients(fed)
        self.model.train()
        return {"loss": loss, "norm": norm}

    def seconds(self, fed):
        start = time.perf_counter()
        self.gradients(fed)
        self.optimizer.step()
        return time.perf_counter() - start


def answer(training, request):
    vocabulary = training.model.config.vocab_size
    batches = [batch(lengths, request["pad"], vocabulary) for lengths in request["batches"]]
    if request.get("check"):
        return training.check(batches[0])
    return {"seconds": [training.seconds(fed) for fed in batches]}


def main():
    versions = {"python": sys.version.split()[0], "torch": torch.__version__, "transformers": transformers.__version__}
    if sys.argv[1] == "info":
        print(json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **versions}))
        return
    training = Training(sys.argv[1])
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(training, json.loads(line))), flush=True)


main()
