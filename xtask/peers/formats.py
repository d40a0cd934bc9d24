"""What frazil writes, real TensorFlow (and NumPy, and safetensors) reads, bit for bit.

usage: formats.py WRITTEN [SHARED] [--full]

WRITTEN is the folder that `cargo xtask peers formats` filled; SHARED the folder of originals that
parts of it are copies of. A copy has the path of its original. TensorFlow reads both. What is no
copy has values by formula (`synthetic.py`)."""

import glob
import json
import os
import sys

import numpy as np
import safetensors
import safetensors.numpy
import tensorflow as tf
from google.protobuf import text_format

import synthetic
from report import check, expect, finish

v1 = tf.compat.v1
tf.get_logger().setLevel("ERROR")  # all of TensorFlow 1 is deprecated: that is why we are here
arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
WRITTEN = arguments[0]
SHARED = arguments[1] if len(arguments) > 1 else None
FULL = "--full" in sys.argv

GOLDEN_TOLERANCE = 1e-5  # largest absolute difference of outputs, float32


def written(*parts):
    return os.path.join(WRITTEN, *parts)


def shared(*parts):
    return os.path.join(SHARED, *parts)


def read(path, message, text=False):
    """A protocol buffer from a file, by Google's own parsers."""
    with open(path, "rb") as f:
        data = f.read()
    return text_format.Parse(data.decode(), message) if text else message.FromString(data)


def same_array(name, found, wanted):
    """Bit for bit, with type and shape; strings byte for byte."""
    wanted = np.asarray(wanted)
    found = np.asarray(found, dtype=object) if wanted.dtype == object else np.asarray(found)
    expect(found.shape == wanted.shape, f"{name}: shape {found.shape}, not {wanted.shape}")
    if wanted.dtype == object:
        expect(found.ravel().tolist() == wanted.ravel().tolist(), f"{name}: strings differ")
    else:
        expect(found.dtype.itemsize == wanted.dtype.itemsize, f"{name}: {found.dtype}, not {wanted.dtype}")
        expect(found.tobytes() == wanted.tobytes(), f"{name}: values differ")


def same_proto(found, wanted):
    expect(found.SerializeToString(deterministic=True) == wanted.SerializeToString(deterministic=True),
           "the messages differ")


def close(found, wanted):
    """The largest absolute difference, if it is within the tolerance."""
    expect(found.shape == wanted.shape, f"shape {found.shape}, not {wanted.shape}")
    difference = float(np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max())
    expect(difference <= GOLDEN_TOLERANCE, f"differs by {difference:.2e}, more than {GOLDEN_TOLERANCE:.0e}")
    return f"within {difference:.1e}"


# Checkpoints


def same_checkpoint(found, wanted):
    """Two prefixes have the same names, types, shapes and bits."""
    found, wanted = tf.train.load_checkpoint(found), tf.train.load_checkpoint(wanted)
    shapes = wanted.get_variable_to_shape_map()
    expect(found.get_variable_to_shape_map() == shapes, "names or shapes differ")
    expect(found.get_variable_to_dtype_map() == wanted.get_variable_to_dtype_map(), "types differ")
    expect(shapes, "no tensors at all")
    for name in shapes:
        same_array(name, found.get_tensor(name), wanted.get_tensor(name))
    return f"{len(shapes)} tensors"


def same_as_formula(prefix, skip=()):
    """A checkpoint has exactly the tensors of `synthetic.json`."""
    wanted = {name: pair for name, pair in synthetic.values().items() if name not in skip}
    reader = tf.train.load_checkpoint(prefix)
    shapes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    listed = {name: tuple(shape) for name, shape in tf.train.list_variables(prefix)}
    expect(listed == {name: tuple(entry["shape"]) for name, (entry, _) in wanted.items()},
           f"the listing differs: {listed.keys() ^ wanted.keys()}")
    for name, (entry, value) in wanted.items():
        expect(shapes[name] == entry["shape"], f"{name}: shape {shapes[name]}, not {entry['shape']}")
        expect(types[name] == entry["dtype"], f"{name}: {types[name].name}, not {entry['dtype']}")
        same_array(name, reader.get_tensor(name), value)
    return f"{len(wanted)} tensors"


def data_files(prefix):
    return len(glob.glob(glob.escape(prefix) + ".data-*"))


def synthetic_checkpoints():
    for name, shards in [("plain", 1), ("sharded", 3), ("compressed", 2)]:
        prefix = written("synthetic", f"{name}.ckpt")

        @check(f"checkpoint of every type, {name}, {shards} data file(s)")
        def _():
            expect(data_files(prefix) == shards, f"{data_files(prefix)} data files")
            return same_as_formula(prefix)

        @check(f"slices of partitioned variables, {name}")
        def _():
            values = synthetic.values()
            # Cut otherwise than they were written, so that TensorFlow must join what it finds.
            for variable, spec, window in [
                ("partitioned/rows", "10 7 2,6:-", np.s_[2:8, :]),
                ("partitioned/columns", "6 11 -:1,9", np.s_[:, 1:10]),
                ("partitioned/both", "9 10 3,4:2,7", np.s_[3:7, 2:9]),
                ("partitioned/vector", "101 50,51", np.s_[50:]),
                ("large", "1031 517 1000,31:-", np.s_[1000:, :]),
            ]:
                entry, value = values[variable]
                [part] = tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=[variable],
                                              shape_and_slices=[spec], dtypes=[entry["dtype"]])
                same_array(variable, part.numpy(), np.ascontiguousarray(value[window]))


COPIED_CHECKPOINTS = [
    "fixtures/classifier/model.ckpt-27",
    "fixtures/pretrain/model.ckpt-40",
    "fixtures/numerics/model.ckpt",
    "fixtures/meta/bert_model.ckpt",
    "models/squad/model.ckpt-2232",
]


def copied_checkpoints():
    for prefix in COPIED_CHECKPOINTS:
        for variant in ["", "sharded"]:

            @check(f"copy of {prefix}" + (", sharded" if variant else ""))
            def _():
                copy = written(variant, prefix)
                expect(data_files(copy) == (4 if variant else 1), f"{data_files(copy)} data files")
                return same_checkpoint(copy, shared(prefix))

        if not prefix.startswith("models"):

            @check(f"copy of {prefix} has the bytes of the original")
            def _():
                for end in [".index", ".data-00000-of-00001"]:
                    with open(written(prefix + end), "rb") as a, open(shared(prefix + end), "rb") as b:
                        expect(a.read() == b.read(), f"{end} differs")


def imported_checkpoints():
    for prefix in ["fixtures/meta/bert_model.ckpt", "models/squad/model.ckpt-2232"]:

        @check(f"{prefix} to Hugging Face's names and back")
        def _():
            found, wanted = tf.train.load_checkpoint(written("imported", prefix)), tf.train.load_checkpoint(shared(prefix))
            # Slots and the step are the optimizer's; Hugging Face has no place for them.
            shapes = {name: shape for name, shape in wanted.get_variable_to_shape_map().items()
                      if not name.endswith(("/adam_m", "/adam_v")) and name != "global_step"}
            expect(found.get_variable_to_shape_map() == shapes, "names or shapes differ")
            for name in shapes:
                same_array(name, found.get_tensor(name), wanted.get_tensor(name))
            return f"{len(shapes)} tensors"


def states():
    @check("checkpoint state")
    def _():
        expect(tf.train.latest_checkpoint(written("synthetic")) == written("synthetic/sharded.ckpt"),
               "latest_checkpoint finds another")
        state = tf.train.get_checkpoint_state(written("synthetic"))
        all_paths = [written(f"synthetic/{name}.ckpt") for name in ["plain", "compressed", "sharded"]]
        expect(list(state.all_model_checkpoint_paths) == all_paths, state.all_model_checkpoint_paths)


# Graphs


def meta_graphs():
    for path, prefix in [
        ("fixtures/meta/bert_model.ckpt.meta", "fixtures/meta/bert_model.ckpt"),
        ("fixtures/meta/bert_model_dyn.ckpt.meta", "fixtures/meta/bert_model.ckpt"),
        ("fixtures/classifier/model.ckpt-27.meta", "fixtures/classifier/model.ckpt-27"),
        ("fixtures/pretrain/model.ckpt-40.meta", "fixtures/pretrain/model.ckpt-40"),
        ("models/squad/model.ckpt-2232.meta", "models/squad/model.ckpt-2232"),
    ]:
        original = read(shared(path), v1.MetaGraphDef())
        for copy, text in [(path, False), (path + ".pbtxt", True)]:

            @check(f"MetaGraph {copy} equals the original")
            def _():
                same_proto(read(written(copy), v1.MetaGraphDef(), text), original)

            @check(f"MetaGraph {copy} restores its checkpoint")
            def _():
                return restore(written(copy), written(prefix), shared(prefix), shared(path[:-5] + ".io.npz"))


def restore(meta, prefix, original, golden):
    """Imports `meta`, restores `prefix`, compares every variable with `original`, and where there
    is a golden run compares the outputs."""
    wanted = tf.train.load_checkpoint(original)
    with tf.Graph().as_default(), v1.Session() as session:
        saver = v1.train.import_meta_graph(meta, clear_devices=True)
        saver.restore(session, prefix)
        # Through the reading node, which reference and resource variables both have.
        snapshots = [v.to_proto().snapshot_name for v in v1.global_variables()]
        names = [v.op.name for v in v1.global_variables()]
        expect(names, "no variables in the graph")
        for name, value in zip(names, session.run(snapshots)):
            same_array(name, value, wanted.get_tensor(name))
        told = f"{len(names)} variables"
        if os.path.exists(golden):
            io = np.load(golden)
            feeds = {f"{name}:0": io[name] for name in ["Placeholder", "Placeholder_1", "Placeholder_2"]}
            for tensor, key in [("bert/pooler/dense/Tanh:0", "pooled"), ("bert/encoder/Reshape_3:0", "sequence_output")]:
                told += f", {key} " + close(session.run(tensor, feeds), io[key])
        return told


def saved_models():
    [folder] = glob.glob(shared("fixtures/classifier/saved_models/*"))
    relative = os.path.relpath(folder, SHARED)
    golden = np.load(shared("fixtures/classifier/test_set_io.npz"))
    original = read(os.path.join(folder, "saved_model.pb"), SavedModel())
    for copy, text in [(written(relative), False), (written("text", relative), True)]:
        kind = "text" if text else "binary"

        @check(f"SavedModel, {kind}, equals the original")
        def _():
            name = "saved_model.pbtxt" if text else "saved_model.pb"
            expect(os.listdir(copy).count(name) == 1, f"no {name}")
            same_proto(read(os.path.join(copy, name), SavedModel(), text), original)
            return same_checkpoint(os.path.join(copy, "variables/variables"),
                                   os.path.join(folder, "variables/variables"))

        @check(f"SavedModel, {kind}, gives the golden probabilities")
        def _():
            with tf.Graph().as_default(), v1.Session() as session:
                meta = v1.saved_model.loader.load(session, ["serve"], copy)
                signature = meta.signature_def["serving_default"]
                fetch = signature.outputs["probabilities"].name
                rows = []
                for i in range(len(golden["input_ids"])):
                    feeds = {info.name: golden[name][i:i + 1].reshape([d.size for d in info.tensor_shape.dim])
                             for name, info in signature.inputs.items()}
                    rows.append(session.run(fetch, feeds))
            return close(np.concatenate(rows), golden["probabilities_saved_model"])


def SavedModel():
    from tensorflow.core.protobuf import saved_model_pb2
    return saved_model_pb2.SavedModel()


def graphs():
    for path in ["fixtures/classifier/frozen_from_saved_model.pb", "fixtures/classifier/frozen_from_graph_pbtxt.pb",
                 "fixtures/reshapable/inference_graph.pb", "fixtures/squad/lpot/bert_int8_lpot1.3.pb"]:
        original = read(shared(path), v1.GraphDef())

        @check(f"GraphDef {path}, binary and text")
        def _():
            same_proto(read(written(path), v1.GraphDef()), original)
            same_proto(read(written(path + "txt"), v1.GraphDef(), text=True), original)
            return f"{len(original.node)} nodes"

    @check("GraphDef fixtures/classifier/graph.pbtxt, binary and text")
    def _():
        original = read(shared("fixtures/classifier/graph.pbtxt"), v1.GraphDef(), text=True)
        same_proto(read(written("fixtures/classifier/graph.pb"), v1.GraphDef()), original)
        same_proto(read(written("fixtures/classifier/graph.pbtxt"), v1.GraphDef(), text=True), original)
        return f"{len(original.node)} nodes"

    @check("frozen graph, binary, gives the golden outputs")
    def _():
        golden = np.load(shared("fixtures/classifier/test_set_io.npz"))
        graph_def = read(written("fixtures/classifier/frozen_from_saved_model.pb"), v1.GraphDef())
        with tf.Graph().as_default(), v1.Session() as session:
            tf.import_graph_def(graph_def, name="")
            feeds = ["input_ids", "input_mask", "segment_ids"]
            rows = [session.run("loss/output:0", {f"{name}_1:0": golden[name][i:i + 1] for name in feeds})
                    for i in range(len(golden["input_ids"]))]
        return close(np.concatenate(rows), golden["probabilities_frozen"])


# Records

COMPRESSIONS = [("plain", ""), ("gzip", "GZIP"), ("zlib", "ZLIB")]


def records(path, compression):
    return [record.numpy() for record in tf.data.TFRecordDataset(path, compression_type=compression)]


def synthetic_example(seed):
    """The Example with this number, as a dictionary. The first has no features at all."""
    if seed == 0:
        return {}
    ids = synthetic.stream(seed, seed * 3).astype(np.int64).tolist()
    weights = np.frombuffer(synthetic.random_bytes(seed, seed * 4), "<u4") & np.uint32(0x3FFFFFFF)  # finite
    return {"ids": ids, "weights": weights.astype("<u4").view("<f4").tolist(), "text": synthetic.strings(seed, 3), "none": []}


def features(example):
    values = {}
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        values[name] = list(getattr(feature, kind).value) if kind else []
    return values


def tf_records():
    for name, compression in COMPRESSIONS:

        @check(f"TFRecord of Examples, {name}")
        def _():
            found = records(written(f"records/examples.{name}.tfrecord"), compression)
            expect(len(found) == 40, f"{len(found)} records, not 40")
            for i, record in enumerate(found):
                expect(features(tf.train.Example.FromString(record)) == synthetic_example(i), f"record {i} differs")
            return f"{len(found)} records"


def copied_records():
    for path in ["fixtures/classifier/train.tf_record", "fixtures/pretrain/tf_examples.tfrecord"]:

        @check(f"copy of {path}: plain, gzip, zlib, and every Example remade")
        def _():
            original = records(shared(path), "")
            for name, compression in COMPRESSIONS:
                expect(records(written(f"{path}.{name}"), compression) == original, f"{name}: records differ")
            remade = [tf.train.Example.FromString(r) for r in records(written(f"{path}.remade"), "")]
            for i, (a, b) in enumerate(zip(remade, original, strict=True)):
                expect(a == tf.train.Example.FromString(b), f"record {i} differs")
            return f"{len(original)} records"


def events():
    @check("event file")
    def _():
        [path] = glob.glob(written("events/events.out.tfevents.*"))
        found = list(v1.train.summary_iterator(path))
        expect(found[0].file_version == "brain.Event:2", f"begins with {found[0]}")
        scalars = [(e.step, v.tag, v.simple_value) for e in found for v in e.summary.value if v.HasField("simple_value")]
        wanted = [(step, tag, float(np.float32(step) / np.float32(divisor)))
                  for step in range(20) for tag, divisor in [("loss", 3), ("train/lr", 7)]]
        expect(scalars == wanted, f"scalars differ: {scalars[:3]}")
        texts = [v.tensor.string_val[0] for e in found for v in e.summary.value if v.HasField("tensor")]
        expect(texts == ["größe, 数量\n".encode()], f"texts are {texts}")
        [histogram] = [v.histo for e in found for v in e.summary.value if v.HasField("histo")]
        same_proto(histogram, tensorflow_histogram())
        expect(all(e.wall_time > 1.5e9 for e in found), "wall times are missing")
        if SHARED:
            [graph] = [v1.GraphDef.FromString(e.graph_def) for e in found if e.graph_def]
            same_proto(graph, read(shared("fixtures/classifier/graph.pbtxt"), v1.GraphDef(), text=True))
        return f"{len(found)} events"


def tensorflow_histogram():
    """The message that TensorFlow makes of the same values."""
    values = (synthetic.stream(1, 1000) >> np.uint64(40)).astype(np.float64) / 1e6 - 8.0
    with tf.Graph().as_default(), v1.Session() as session:
        summary = session.run(v1.summary.histogram("weights", tf.constant(values)))
    return v1.Summary.FromString(summary).value[0].histo


# Arrays


def arrays():
    @check("npz")
    def _():
        npz = np.load(written("synthetic/tensors.npz"))
        wanted = {n: (e, v) for n, (e, v) in synthetic.values().items()
                  if e["dtype"] not in synthetic.STORED_AS and e["dtype"] not in ("string", "bfloat16")}
        expect(sorted(npz) == sorted(wanted), f"names differ: {set(npz) ^ set(wanted)}")
        for name, (entry, value) in wanted.items():
            expect(npz[name].dtype == entry["dtype"], f"{name}: {npz[name].dtype}")
            same_array(name, npz[name], value)
        return f"{len(wanted)} arrays"

    @check("safetensors")
    def _():
        path = written("synthetic/tensors.safetensors")
        wanted = {n: (e, v) for n, (e, v) in synthetic.values().items()
                  if e["dtype"] not in synthetic.STORED_AS and e["dtype"] not in ("string", "complex128")}
        found = safetensors.numpy.load_file(path)
        expect(sorted(found) == sorted(wanted), f"names differ: {set(found) ^ set(wanted)}")
        for name, (entry, value) in wanted.items():
            expect(found[name].dtype == entry["dtype"], f"{name}: {found[name].dtype}, not {entry['dtype']}")
            same_array(name, found[name], value)
        with safetensors.safe_open(path, "np") as f:
            expect(f.metadata() == {"format": "frazil", "größe": "数量"}, f"metadata are {f.metadata()}")
        return f"{len(wanted)} tensors"


def copied_arrays():
    @check("npz copy of fixtures/numerics/weights.npz")
    def _():
        found, wanted = np.load(written("fixtures/numerics/weights.npz")), np.load(shared("fixtures/numerics/weights.npz"))
        expect(sorted(found) == sorted(wanted), "names differ")
        for name in wanted:
            expect(found[name].dtype == wanted[name].dtype, f"{name}: {found[name].dtype}")
            same_array(name, found[name], wanted[name])
        return f"{len(wanted.files)} arrays"


def large():
    """BERT-large's pre-training checkpoint in four data files; `large.json` has names and shapes."""

    @check("checkpoint of BERT-large's size, 4 data files")
    def _():
        with open(written("large.json")) as f:
            table = json.load(f)
        prefix = written("large/bert_model.ckpt")
        expect(data_files(prefix) == 4, f"{data_files(prefix)} data files")
        reader = tf.train.load_checkpoint(prefix)
        expect(reader.get_variable_to_shape_map() == {e["name"]: e["shape"] for e in table}, "names or shapes differ")
        for seed, entry in enumerate(table, start=1):
            same_array(entry["name"], reader.get_tensor(entry["name"]), synthetic.value(entry, seed))
        parameters = sum(int(np.prod(e["shape"])) for e in table)
        return f"{len(table)} tensors, {parameters} parameters"


print(f"TensorFlow {tf.__version__}, NumPy {np.__version__}, safetensors {safetensors.__version__}")
synthetic_checkpoints()
states()
tf_records()
events()
arrays()
if SHARED:
    copied_checkpoints()
    imported_checkpoints()
    meta_graphs()
    saved_models()
    graphs()
    copied_records()
    copied_arrays()
if FULL:
    large()
finish()
