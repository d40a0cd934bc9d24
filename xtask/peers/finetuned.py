"""What frazil has trained, real TensorFlow restores, runs and freezes; the scores are the same.

usage: finetuned.py WRITTEN [SHARED] [--full]
       finetuned.py score PREFIX RECORDS
       finetuned.py info

The first trains a classifier and a model for SQuAD with the original's command lines, below WRITTEN. The second prints
accuracy and mean loss of a classifier's checkpoint on records that `run_classifier` wrote, as JSON; the third the time
and versions."""

import glob
import json
import os
import platform
import subprocess
import sys
import time

import numpy as np
import tensorflow as tf

from report import check, expect, finish
from tf1 import session, v1

TOLERANCE = 1e-5  # largest absolute difference of logits and probabilities, float32
INPUTS = ("input_ids", "input_mask", "segment_ids")


def records(path, more):
    """The features of a record file, by name: int32 arrays; `more` are those of one number."""
    rows = {name: [] for name in (*INPUTS, *more)}
    for record in v1.io.tf_record_iterator(path):
        features = tf.train.Example.FromString(record).features.feature
        for name, values in rows.items():
            found = list(features[name].int64_list.value)
            values.append(found[0] if name in more else found)
    return {name: np.array(values, np.int32) for name, values in rows.items()}


def restored(prefix):
    """A session with the graph beside a checkpoint and the checkpoint's values."""
    running = session(tf.Graph())
    with running.graph.as_default():
        saver = v1.train.import_meta_graph(prefix + ".meta", clear_devices=True)
        saver.restore(running, prefix)
    return running


def run(running, fetches, fed, batch=32):
    """All rows of what is fed, some at a time."""
    count = len(next(iter(fed.values())))
    parts = [running.run(fetches, {f"{name}:0": values[at:at + batch] for name, values in fed.items()})
             for at in range(0, count, batch)]
    return [np.concatenate([part[i] for part in parts]) for i in range(len(fetches))]


def classified(prefix, path):
    """Logits and labels."""
    rows = records(path, ("label_ids", "is_real_example"))
    real = rows.pop("is_real_example") == 1
    labels = rows.pop("label_ids")
    with restored(prefix) as running:
        [logits] = run(running, ["loss/BiasAdd:0"], rows)
    return logits[real], labels[real], {name: values[real] for name, values in rows.items()}


def score(prefix, path):
    logits, labels, _ = classified(prefix, path)
    wide = logits.astype(np.float64)
    losses = np.log(np.exp(wide).sum(1)) - wide[np.arange(len(labels)), labels]
    return {"accuracy": float((logits.argmax(1) == labels).mean()), "loss": float(losses.mean()),
            "examples": len(labels), "tensorflow": tf.__version__}


def frazil(*words):
    done = subprocess.run([os.environ["FRAZIL"], *map(str, words)], capture_output=True, text=True)
    expect(done.returncode == 0, f"frazil {words[0]}: {done.stderr[-400:]}")
    return done.stderr


def close(found, wanted):
    expect(found.shape == wanted.shape, f"shape {found.shape}, not {wanted.shape}")
    difference = float(np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max())
    expect(difference <= TOLERANCE, f"differs by {difference:.2e}, more than {TOLERANCE:.0e}")
    return f"{len(found)} rows within {difference:.1e}"


def by_frazil(prefix, head, config, rows, folder):
    """What frazil computes with a checkpoint alone, by output."""
    fed, given = os.path.join(folder, "fed.npz"), os.path.join(folder, "given.npz")
    np.savez(fed, **rows)
    frazil("run", prefix, "--head", head, "--config", config, "--inputs", fed, "--outputs", given, "--quiet")
    return np.load(given)


def same_values(prefix):
    """Every tensor can be read, slots and step among them."""
    reader = tf.train.load_checkpoint(prefix)
    names = sorted(reader.get_variable_to_shape_map())
    expect(all(np.isfinite(reader.get_tensor(name)).all() for name in names), "a value is no number")
    slots = [name for name in names if name.endswith(("/adam_m", "/adam_v"))]
    weights = [name for name in names if f"{name}/adam_m" in names]
    expect(len(slots) == 2 * len(weights) and weights, f"{len(slots)} slots for {len(weights)} weights")
    step = int(reader.get_tensor("global_step"))
    expect(prefix.endswith(f"-{step}"), f"global_step is {step}")
    return f"{len(weights)} weights with their slots, step {step}"


def saved_again(prefix, folder):
    """What TensorFlow saves after restoring is what was there."""
    again = os.path.join(folder, "again")
    with restored(prefix) as running:
        save = running.graph.get_tensor_by_name("save/control_dependency:0")
        running.run(save, {"save/Const:0": again})
    found, wanted = tf.train.load_checkpoint(again), tf.train.load_checkpoint(prefix)
    shapes = found.get_variable_to_shape_map()
    for name in shapes:
        expect(np.array_equal(found.get_tensor(name), wanted.get_tensor(name)), f"{name} differs")
    only = {name for name in wanted.get_variable_to_shape_map() if name not in shapes}
    expect(all(name.startswith("frazil/") for name in only), f"not restored: {sorted(only)[:3]}")
    return f"{len(shapes)} variables"


def served(folder):
    """The signature's tensors of an exported model, and a session that has it."""
    running = session(tf.Graph())
    with running.graph.as_default():
        meta = v1.saved_model.loader.load(running, ["serve"], folder)
    return running, meta.signature_def["serving_default"]


def one_by_one(running, signature, rows, output):
    """Batch 1, as recipe 2 bakes it."""
    count = len(next(iter(rows.values())))
    found = []
    for at in range(count):
        fed = {info.name: rows[name][at:at + 1] for name, info in signature.inputs.items()}
        found.append(running.run(signature.outputs[output].name, fed))
    return np.concatenate(found)


def classifier(written, shared):
    data = os.path.join(shared, "fixtures/data")
    config, out = os.path.join(data, "bert_config_small.json"), os.path.join(written, "classifier")
    exports = os.path.join(written, "saved_models")
    log = frazil("run_classifier", "--task_name=MRPC", "--do_train=true", "--do_eval=true",
                 f"--data_dir={data}/MRPC", f"--vocab_file={data}/vocab_small.txt", f"--bert_config_file={config}",
                 f"--init_checkpoint={shared}/fixtures/pretrain/model.ckpt-40", "--max_seq_length=128",
                 "--train_batch_size=8", "--learning_rate=1e-3", "--num_train_epochs=3.0", f"--output_dir={out}",
                 f"--export_saved_model={exports}")
    prefix = tf.train.latest_checkpoint(out)
    evaluation = os.path.join(out, "eval.tf_record")

    @check("a fine-tuned classifier: every tensor of the checkpoint")
    def _():
        return same_values(prefix)

    @check("… restored and saved again by TensorFlow")
    def _():
        return saved_again(prefix, written)

    @check("… logits by its .meta are frazil's")
    def _():
        logits, _, rows = classified(prefix, evaluation)
        return close(by_frazil(prefix, "classifier", config, rows, written)["logits"], logits)

    @check("… accuracy and loss are those of eval_results.txt")
    def _():
        with open(os.path.join(out, "eval_results.txt")) as f:
            wanted = dict(line.strip().split(" = ") for line in f)
        found = score(prefix, evaluation)
        expect(abs(found["accuracy"] - float(wanted["eval_accuracy"])) < 1e-6, f"{found} is not {wanted}")
        expect(abs(found["loss"] - float(wanted["eval_loss"])) < 1e-5, f"{found} is not {wanted}")
        return f"{found['accuracy']:.4f} on {found['examples']}"

    [exported] = glob.glob(os.path.join(exports, "*"))

    @check("… exported: Estimator's folder, log and signature")
    def _():
        second = os.path.basename(exported)
        expect(second.isdigit(), f"the folder is {second}")
        expect(f"SavedModel written to: {exports}/temp-{second}/saved_model.pb" in log, "the log does not say so")
        running, signature = served(exported)
        running.close()
        shape = lambda info: [d.size for d in info.tensor_shape.dim]  # noqa: E731
        found = {name: (info.name, shape(info)) for name, info in signature.inputs.items()}
        wanted = {name: (f"{name}_1:0", [1, 128]) for name in INPUTS}
        wanted["label_ids"] = ("label_ids_1:0", [1])
        expect(found == wanted, f"inputs {found}")
        found = {name: (info.name, shape(info)) for name, info in signature.outputs.items()}
        expect(found == {"probabilities": ("loss/output:0", [1, 2])}, f"outputs {found}")
        expect(signature.method_name == "tensorflow/serving/predict", signature.method_name)

    @check("… exported: probabilities by Serving's loader and by TensorFlow 2's")
    def _():
        logits, labels, rows = classified(prefix, evaluation)
        wide = np.exp(logits.astype(np.float64))
        wanted = wide / wide.sum(1, keepdims=True)
        rows["label_ids"] = labels
        running, signature = served(exported)
        with running:
            close(one_by_one(running, signature, rows, "probabilities"), wanted)
        call = tf.saved_model.load(exported).signatures["serving_default"]
        fed = {name: tf.constant(values[:1]) for name, values in rows.items()}
        return close(call(**fed)["probabilities"].numpy(), wanted[:1])

    @check("… frozen by recipe 2's line, by TensorFlow's tool and by frazil's")
    def _():
        from tensorflow.python.tools import freeze_graph

        theirs, ours = os.path.join(written, "theirs.pb"), os.path.join(written, "ours.pb")
        freeze_graph.freeze_graph(
            input_graph=os.path.join(out, "graph.pbtxt"), input_saver="", input_binary=False,
            input_checkpoint=prefix, output_node_names="loss/output", restore_op_name="save/restore_all",
            filename_tensor_name="save/Const:0", output_graph=theirs, clear_devices=True, initializer_nodes="",
            input_saved_model_dir=exported)
        frazil("freeze_graph", f"--input_graph={out}/graph.pbtxt", "--input_binary=false",
               f"--input_checkpoint={prefix}", f"--input_saved_model_dir={exported}", f"--output_graph={ours}",
               "--output_node_names=loss/output")
        graphs = []
        for path in (theirs, ours):
            with open(path, "rb") as f:
                graphs.append({node.name: node for node in v1.GraphDef.FromString(f.read()).node})
        expect(graphs[0].keys() == graphs[1].keys(), f"{len(graphs[0])} nodes, frazil's has {len(graphs[1])}")
        expect(all(graphs[0][name].op == graphs[1][name].op for name in graphs[0]), "operations differ")
        return f"{len(graphs[0])} nodes"


def squad(written, shared):
    data = os.path.join(shared, "fixtures/data")
    config, out = os.path.join(data, "bert_config_small.json"), os.path.join(written, "squad")
    exports = os.path.join(written, "squad_models")
    frazil("run_squad", "--do_train=true", "--do_predict=true", f"--train_file={data}/squad/train-v1.1.json",
           f"--predict_file={data}/squad/dev-v1.1.json", f"--vocab_file={data}/vocab_small.txt",
           f"--bert_config_file={config}", f"--init_checkpoint={shared}/fixtures/pretrain/model.ckpt-40",
           "--max_seq_length=96", "--doc_stride=32", "--train_batch_size=8", "--learning_rate=1e-3",
           "--num_train_epochs=1.0", f"--output_dir={out}", f"--export_saved_model={exports}", "--export_batch_size=0")
    prefix = tf.train.latest_checkpoint(out)

    @check("a model fine-tuned for SQuAD: every tensor of the checkpoint")
    def _():
        return same_values(prefix)

    @check("… logits by its .meta and of its SavedModel are frazil's")
    def _():
        rows = records(os.path.join(out, "train.tf_record"), ("unique_ids",))
        rows = {name: values[:40] for name, values in rows.items()}
        ids = rows.pop("unique_ids")
        with restored(prefix) as running:
            start, end = run(running, ["unstack:0", "unstack:1"], rows)
        ours = by_frazil(prefix, "squad", config, rows, written)
        close(ours["start_logits"], start)
        said = close(ours["end_logits"], end)
        [exported] = glob.glob(os.path.join(exports, "*"))
        running, signature = served(exported)
        with running:
            fed = {info.name: {**rows, "unique_ids": ids}[name] for name, info in signature.inputs.items()}
            names = {name: info.name for name, info in signature.outputs.items()}
            found = running.run(names, fed)
        expect(np.array_equal(found["unique_ids"], ids), "unique_ids differ")
        close(found["start_logits"], start)
        close(found["end_logits"], end)
        return said


def main():
    if sys.argv[1] == "score":
        print(json.dumps(score(sys.argv[2], sys.argv[3])))
        return
    if sys.argv[1] == "info":
        print(json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                          "python": platform.python_version(), "tensorflow": tf.__version__}))
        return
    print(f"TensorFlow {tf.__version__}, NumPy {np.__version__}")
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    if len(arguments) < 2:
        check("nothing to train on without the shared data")(lambda: None)
    else:
        classifier(*arguments)
        squad(*arguments)
    finish()


main()
