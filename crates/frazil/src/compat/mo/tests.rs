//! Flags one by one: what they mean, what is said of those without effect, what is refused.

use std::ffi::OsString;
use std::path::Path;

use super::*;

/// A folder with one empty graph, one `.meta`, and files that are no models.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("g.pb", b"\x0a\x08\x0a\x01x\x12\x03NoO");
    write("g.pbtxt", b"node { name: \"x\" op: \"NoOp\" }\n");
    write("a.ckpt.meta", b"");
    write("a.ckpt.index", b"");
    write("a.ckpt.data-00000-of-00001", b"");
    write("b.ckpt.index", b"");
    write("page.pb", b"<!DOCTYPE html><html></html>");
    folder
}

fn words(line: &str) -> Vec<OsString> {
    line.split(' ')
        .filter(|word| !word.is_empty())
        .map(|word| word.replace('~', " ").into())
        .collect()
}

/// The plan of a command line in which `%` is the folder and `~` a space within a word.
fn planned(folder: &Path, line: &str) -> Result<Plan, String> {
    let line = line.replace('%', folder.to_str().unwrap());
    let flags = Flags::parse_words(&words(&line)).map_err(|error| error.to_string())?;
    plan(&flags).map_err(|error| error.to_string())
}

#[test]
fn what_flags_mean() {
    let folder = folder();
    let plan =
        |line: &str| planned(folder.path(), line).unwrap_or_else(|error| panic!("{line}: {error}"));
    for line in ["-m %/g.pb", "-w %/g.pb", "--input_model=%/g.pb"] {
        let plan = plan(line);
        assert_eq!(plan.source, folder.path().join("g.pb"), "{line}");
        assert_eq!(plan.xml, Path::new("./g.xml"), "{line}");
        assert!(plan.warnings.is_empty() && !plan.options.fp16, "{line}");
        assert_eq!(plan.options.fold, Some(false), "{line}");
    }
    let named = plan("-m %/g.pb -n bert -o %/out --static_shape --framework tf");
    assert_eq!(named.xml, folder.path().join("out/bert.xml"));
    assert_eq!(named.options.name.as_deref(), Some("bert"));
    assert_eq!(named.options.fold, Some(true));
    for (line, fp16) in [
        ("--data_type FP16", true),
        ("--data_type half", true),
        ("--data_type=FP32", false),
        ("--data_type float", false),
        ("--compress_to_fp16", true),
        ("--compress_to_fp16 --batch 2", true),
        ("--compress_to_fp16=True", true),
        ("--compress_to_fp16 False", false),
        ("--compress_to_fp16 1 --data_type FP16", true),
    ] {
        assert_eq!(plan(&format!("-m %/g.pb {line}")).options.fp16, fp16, "{line}");
    }
    for (line, talk) in [
        ("", Talk::Notes),
        ("--silent", Talk::Silent),
        ("--silent True", Talk::Silent),
        ("--silent False", Talk::Notes),
        ("--log_level DEBUG", Talk::Passes),
        ("--log_level=INFO --silent", Talk::Silent),
        ("--log_level CRITICAL", Talk::Silent),
    ] {
        assert_eq!(plan(&format!("-m %/g.pb {line}")).talk, talk, "{line}");
    }
}

#[test]
fn cuts_reach_the_plan() {
    let folder = folder();
    let cut = |line: &str| planned(folder.path(), line).unwrap().options.graph.cut;
    let spec = cut("-m %/g.pb --input x:0{i32}[1~128],2:y[?,1..8],c->5 --output z:1,z");
    let inputs = spec.inputs.unwrap();
    assert_eq!((inputs[0].port, inputs[1].in_port), (Some(0), Some(2)));
    assert!(inputs[2].value.is_some());
    assert_eq!(spec.outputs.unwrap().len(), 2);
    assert_eq!(cut("-m %/g.pb --batch 3 --input x").batch, Some(3));
    assert_eq!(cut("-m %/g.pb --input_shape [-1,128]").only_shape.unwrap().len(), 2);
    assert_eq!(cut("-m %/g.pb --freeze_placeholder_with_value t->True").frozen.len(), 1);
}

#[test]
fn sources() {
    let folder = folder();
    let plan = |line: &str| planned(folder.path(), line);
    for name in ["a.ckpt.meta", "a.ckpt.index", "a.ckpt.data-00000-of-00001", "a.ckpt"] {
        let plan = plan(&format!("--input_meta_graph %/{name}")).unwrap();
        assert_eq!(plan.source, folder.path().join("a.ckpt.meta"), "{name}");
        assert_eq!(plan.xml, Path::new("./a.ckpt.xml"), "{name}");
    }
    let saved = plan("--saved_model_dir % --saved_model_tags serve,gpu").unwrap();
    assert_eq!(saved.xml, Path::new("./saved_model.xml"));
    assert_eq!(saved.options.graph.tags, ["serve", "gpu"]);
    let text = plan("--input_model %/g.pbtxt --input_model_is_text --input_checkpoint %/a.ckpt");
    let text = text.unwrap();
    assert!(text.warnings.is_empty());
    assert_eq!(text.options.graph.checkpoint, Some(folder.path().join("a.ckpt")));
    for (line, wanted) in [
        ("", "no model is given"),
        ("--input_checkpoint %/a.ckpt", "no graph is given"),
        ("-m %/g.pb --saved_model_dir %", "`--input_model` and `--saved_model_dir` are both given"),
        ("-m %/g.pb --input_meta_graph %/a.ckpt.meta", "are both given"),
        ("--saved_model_dir % --saved_model_tags a,~b", "has a space in `a, b`"),
        ("--input_meta_graph %/b.ckpt.index", "is no `.meta`, and none lies beside it"),
        ("-m %/a.ckpt.meta", "is a MetaGraph, not a frozen graph"),
        ("-m %/a.ckpt", "is a checkpoint, not a frozen graph"),
        ("-m %/a.ckpt.index", "is a checkpoint, not a frozen graph"),
        ("-m %", "is a folder, not a frozen graph"),
        ("-m %/nothing.pb", "there is no `"),
        ("-m %/page.pb", "not a frozen graph"),
        ("-m %/g.pb --framework caffe", "frazil reads TensorFlow's models only"),
        ("-m %/g.pb --framework nothing", "is no framework"),
    ] {
        let error = plan(line).unwrap_err();
        assert!(error.contains(wanted), "{line}: {error}");
    }
}

#[test]
fn contradictions() {
    let folder = folder();
    for (line, wanted) in [
        ("--batch 0", "`--batch 0` is no positive number"),
        ("--batch -1", "`--batch -1` is no positive number"),
        ("-b x", "`--batch x` is no positive number"),
        ("--batch 2 --input_shape [1,2]", "`--input_shape` and by `--batch`"),
        ("--batch 2 --input a[1~2]", "`--input` and by `--batch`"),
        ("--input a[1~2] --input_shape [1,2]", "`--input` and by `--input_shape`"),
        ("--input_shape [1,2],[3]", "there is no `--input` that names their inputs"),
        ("--input a,b --input_shape [1]", "`--input` names 2 input(s)"),
        ("--input_shape (1,2", "brackets"),
        ("--input_shape [1,-3]", "`-3` is no extent"),
        ("--input a[?]->1", "its shape [?] is dynamic"),
        ("--input a[3]->[1~2]", "frozen to 2 element(s), its shape [3] has 3"),
        ("--input a->1 --freeze_placeholder_with_value a->2", "is frozen to `1` and to `2`"),
        ("--freeze_placeholder_with_value a", "is not `name->value`"),
        ("--data_type INT8", "is no type of weights"),
        ("--data_type FP16 --compress_to_fp16 False", "contradict each other"),
        ("--compress_to_fp16 perhaps", "neither `True` nor `False`"),
        ("--silent perhaps", "neither `True` nor `False`"),
        ("--log_level LOUD", "is no level"),
        ("--mean_values [1,2,3]", "prepares images"),
        ("-ms (1,2,3)", "`--mean_values` prepares images"),
        ("--scale_values x[1]", "prepares images"),
        ("--scale 255", "prepares images"),
        ("-s 255", "prepares images"),
        ("-s 2 --scale_values x[1]", "are both given"),
        ("--layout nhwc->nchw", "change of layout"),
        ("--target_layout nchw", "change of layout"),
        ("--layout nc --source_layout nc", "goes with neither"),
        ("--transform MakeStateful[param_res_names={'a':'b'}]", "keeps no state"),
        ("--transform Nonsense", "knows no `Nonsense`"),
        ("--use_new_frontend --use_legacy_frontend", "exclude each other"),
        ("--nonsense", "unexpected argument '--nonsense'"),
        ("positional", "unexpected argument 'positional'"),
    ] {
        let line = format!("-m %/g.pb {line}");
        let error = planned(folder.path(), &line).unwrap_err();
        assert!(error.contains(wanted), "{line}: {error}");
    }
}

#[test]
fn flags_without_effect_are_reported() {
    let folder = folder();
    for flag in [
        "--input_model_is_text",
        "--saved_model_tags a",
        "--reverse_input_channels",
        "--layout nc",
        "--source_layout nc",
        "--transform LowLatency2[use_const_initializer=False]",
        "--transform Pruning",
        "--extensions x",
        "--transformations_config x.json",
        "--tensorflow_custom_operations_config_update x.json",
        "--tensorflow_use_custom_operations_config x.json",
        "--tensorflow_object_detection_api_pipeline_config x.config",
        "--tensorboard_logdir logs",
        "--tensorflow_custom_layer_libraries x.so",
        "--progress",
        "--stream_output",
        "--use_new_frontend",
        "--use_legacy_frontend",
        "--disable_nhwc_to_nchw",
        "--disable_fusing",
        "--disable_resnet_optimization",
        "--disable_gfusing",
        "--finegrain_fusing .*",
        "--enable_concat_optimization",
        "--disable_weights_compression",
    ] {
        let plan = planned(folder.path(), &format!("-m %/g.pb {flag}"));
        let warnings = plan.unwrap_or_else(|error| panic!("{flag}: {error}")).warnings;
        let name = flag.split([' ', '[']).next().unwrap();
        assert_eq!(warnings.len(), 1, "{flag}");
        assert!(warnings[0].starts_with(&format!("`{name}")), "{flag}: {}", warnings[0]);
        assert!(warnings[0].contains("has no effect: "), "{flag}: {}", warnings[0]);
    }
    let two = planned(folder.path(), "-m %/g.pb --transform LowLatency2,Pruning --progress");
    assert_eq!(two.unwrap().warnings.len(), 3);
}

#[test]
fn version_and_help() {
    let output = |line: &str| {
        let mut out = Vec::new();
        let result = run(Args { words: words(line) }, &mut out);
        (result.map_err(|error| error.to_string()), String::from_utf8(out).unwrap())
    };
    let (result, text) = output("--version");
    assert!(result.is_ok() && text.starts_with("Version of Model Optimizer is: frazil "), "{text}");
    let (help, _) = output("--help");
    let help = help.unwrap_err();
    assert!(help.contains("--input_meta_graph") && help.contains("--compress_to_fp16"), "{help}");
}
