//! The road: which command at each step, what of its output matters, and the line for the user's own files.

use super::excerpt::Keep;

/// Where the numbers of a step come from, for the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// There are none.
    Nothing,
    /// The same command with `--json`, which costs nothing.
    Json(&'static str),
    /// A measurement, which is made once.
    Bench(&'static str),
    /// A file that the command leaves.
    File(&'static str, &'static str),
}

/// One step: `{}` stands for the demo's folder.
pub struct Step {
    pub title: &'static str,
    /// Words in quotes are one.
    pub line: &'static str,
    pub yours: &'static str,
    pub keep: Keep,
    pub record: Record,
}

pub const STEPS: [Step; 20] = [
    Step {
        title: "What is in a checkpoint",
        line: "inspect {}",
        yours: "inspect uncased_L-12_H-768_A-12.zip",
        keep: Keep::First(11),
        record: Record::Nothing,
    },
    Step {
        title: "What its graph takes and gives, and which sizes are baked in",
        line: "inspect {}/squad/model.ckpt.meta",
        yours: "inspect model.ckpt-1000.meta --report model.html",
        keep: Keep::With(&["DT_INT32", "unstack:", "baked in"]),
        record: Record::Nothing,
    },
    Step {
        title: "One frozen graph: the weights inside, the loss gone",
        line: "freeze {}/squad/model.ckpt.meta -o {}/frozen.pb",
        yours: "freeze_graph --input_meta_graph=model.ckpt-0.meta --input_checkpoint=model.ckpt-0 --output_node_names=unstack --output_graph=frozen.pb --input_binary=True",
        keep: Keep::With(&["input  ", "output  ", " nodes, ", "wrote"]),
        record: Record::Nothing,
    },
    Step {
        title: "The batch of 32 and the length of 128 that were baked in are open",
        line: "reshape {}/frozen.pb --batch dynamic --seq dynamic -o {}/any.pb",
        yours: "reshape bert_model.ckpt.meta --batch dynamic --seq dynamic -o any.pb",
        keep: Keep::With(&["input  ", "output  ", " nodes, ", "wrote"]),
        record: Record::Nothing,
    },
    Step {
        title: "ONNX, opened again and run beside its source",
        line: "convert {}/any.pb --to onnx -o {}/squad.onnx --verify",
        yours: "convert model.ckpt-1000 --to onnx -o model.onnx --verify",
        keep: Keep::With(&["wrote", "max |a-b|", "[4, 32]", "equal"]),
        record: Record::Nothing,
    },
    Step {
        title: "OpenVINO IR, by Model Optimizer's own command line",
        line: "mo --input_model {}/any.pb --output unstack:0,unstack:1 --output_dir {} --model_name squad",
        yours: "mo --input_model inference_graph.pb --input \"IteratorGetNext:0{i32}[1 128],IteratorGetNext:1{i32}[1 128],IteratorGetNext:4{i32}[1 128]\"",
        keep: Keep::With(&["SUCCESS"]),
        record: Record::Nothing,
    },
    Step {
        title: "From the checkpoint to the IR nothing was lost",
        line: "verify {}/squad/model.ckpt {}/squad.xml",
        yours: "verify model.ckpt-1000 model.xml --report verify.html",
        keep: Keep::With(&["A:", "B:", "max |a-b|", "[4, 32]", "name compared", "equal"]),
        record: Record::Json("verify"),
    },
    Step {
        title: "A SavedModel, as TensorFlow Serving takes it",
        line: "convert {}/classifier --to saved-model --batch 1 --seq 128 -o {}/saved_model",
        yours: "convert model.ckpt-1000 --head classifier --to saved-model -o export/1",
        keep: Keep::With(&["input  ", "output  ", "wrote"]),
        record: Record::Nothing,
    },
    Step {
        title: "Any of these files runs",
        line: "run {}/squad.onnx --inputs {}/inputs.npz --outputs {}/outputs.npz",
        yours: "run model.ckpt-1000 --inputs batch.npz --outputs out.npz",
        keep: Keep::All,
        record: Record::Nothing,
    },
    Step {
        title: "A question about a text",
        line: "predict answer {}/squad --quiet --top 2 --question 'Where does Nina live?' --context 'Ben is a baker. He lives in Rome. Nina has three cats. Her home is in Oslo.'",
        yours: "predict answer squad_model --question 'Who …?' --context \"$(cat text.txt)\"",
        keep: Keep::All,
        record: Record::Nothing,
    },
    Step {
        title: "Do two sentences say the same?",
        line: "predict classify {}/classifier --quiet --labels different,same --text 'Nina lives in Oslo.' --pair \"Nina's home is in Oslo.\"",
        yours: "predict classify model_dir pairs.csv --labels different,same",
        keep: Keep::All,
        record: Record::Nothing,
    },
    Step {
        title: "All questions of a file whose texts the model has not seen",
        line: "predict answer {}/squad {}/squad/dev-v1.1.json --quiet --output-dir {}/answers",
        yours: "run_squad --bert_config_file=bert_config.json --vocab_file=vocab.txt --init_checkpoint=model.ckpt --do_predict=True --predict_file=dev-v1.1.json --output_dir=out",
        keep: Keep::All,
        record: Record::Nothing,
    },
    Step {
        title: "The official score of these answers",
        line: "evaluate squad {}/squad/dev-v1.1.json {}/answers/predictions.json",
        yours: "evaluate squad dev-v1.1.json out/predictions.json",
        keep: Keep::All,
        record: Record::Json("squad"),
    },
    Step {
        title: "And that of the classifier",
        line: "evaluate glue MRPC {}/classifier --model {}/classifier --quiet",
        yours: "evaluate glue MRPC glue_data/MRPC --model model_dir",
        keep: Keep::With(&["task", "acc  ", "f1  "]),
        record: Record::Json("glue"),
    },
    Step {
        title: "How fast f32 is here, and what padding would cost",
        line: "bench {}/squad --batch 8 --lengths lognormal:60,0.3,128 --sequences 64 --iterations 15 --compare padded,packed",
        yours: "bench model.ckpt-1000 --batch 8 --lengths squad --compare padded,packed --profile",
        keep: Keep::All,
        record: Record::Bench("f32"),
    },
    Step {
        title: "int8, if F1 loses no more than 1 %",
        line: "quantize {}/squad --task squad --calibration {}/squad/train-v1.1.json --evaluation {}/squad/dev-v1.1.json --max-drop 1% --quiet -o {}/int8.frazil -o {}/int8.onnx",
        yours: "quantize squad_model --task squad --calibration train-v1.1.json --evaluation dev-v1.1.json --max-drop 1% -o int8.frazil",
        keep: Keep::All,
        record: Record::File("quantize", "int8.quantize/report.json"),
    },
    Step {
        title: "int8 beside f32, in turns",
        line: "bench {}/squad --batch 8 --lengths lognormal:60,0.3,128 --sequences 64 --iterations 15 --compare f32,{}/int8.frazil",
        yours: "bench model.ckpt-1000 --compare f32,int8.frazil --batch 8 --lengths squad",
        keep: Keep::All,
        record: Record::Bench("int8"),
    },
    Step {
        title: "Text to what BERT is pre-trained on",
        line: "create_pretraining_data --input_file={}/texts.txt --output_file={}/texts.tfrecord --vocab_file={}/vocab.txt --max_seq_length=128 --dupe_factor=4 --quiet --json",
        yours: "create_pretraining_data --input_file='wiki/*' --output_file=wiki.tfrecord --vocab_file=vocab.txt",
        keep: Keep::With(&["\"documents\"", "\"instances\"", "\"pieces\"", "\"masked\""]),
        record: Record::Nothing,
    },
    Step {
        title: "Several sequences in the length of one, and a proof that none sees another",
        line: "pack {}/texts.tfrecord -o {}/packed.tfrecord --check --quiet",
        yours: "pack wiki.tfrecord -o packed.tfrecord --check",
        keep: Keep::All,
        record: Record::Json("pack"),
    },
    Step {
        title: "The pre-trained model learns to answer, in a few seconds",
        line: "finetune squad {} --train {}/squad/train-v1.1.json --dev {}/squad/dev-v1.1.json --max-seq-length 128 --batch-size 8 --learning-rate 1e-3 --epochs 8 --save-every 80 --quiet -o {}/finetuned",
        yours: "finetune squad uncased_L-12_H-768_A-12 --train train-v1.1.json --dev dev-v1.1.json -o squad",
        keep: Keep::All,
        record: Record::Nothing,
    },
];
