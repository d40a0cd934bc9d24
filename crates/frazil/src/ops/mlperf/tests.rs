//! Tests of configurations, of what becomes of their keys, and of the runs that they describe.

use frazil_tensor::testing::shared;
use frazil_train::optim::Method;
use frazil_train::schedule::Schedule;
use serde_json::json;

use super::*;

/// The published intervals, by batch.
#[test]
fn evaluations_come_as_mlperf_has_them() {
    for (batch, expected) in
        [(3072, 175_000), (6144, 200_000), (448, 150_000), (1536, 150_000), (12288, 275_000)]
    {
        assert_eq!(interval(batch), expected, "{batch}");
    }
    let all = triggers(3072, 4_500_000);
    assert_eq!((all[0], all.len()), (175_000, 26));
    assert_eq!(all.last(), Some(&4_550_000));
    // Where the interval divides the end, the last one is there.
    let all = triggers(3072, 3_500_000);
    assert_eq!((all.len(), all.last()), (20, Some(&3_500_000)));
}

/// Settings of a small run whose files exist.
fn small(folder: &Path, keys: Value) -> Settings {
    std::fs::write(folder.join("strategy_0"), "").unwrap();
    let files = json!([folder.join("strategy*").display().to_string()]);
    let mut settings = Settings::default();
    settings.set("input_files", files.clone()).unwrap();
    settings.set("on_the_spot_validation_files", files).unwrap();
    for (key, value) in keys.as_object().unwrap() {
        settings.set(key, value.clone()).unwrap();
    }
    settings
}

#[test]
fn evaluations_come_in_order_and_not_after_the_end() {
    let folder = tempfile::tempdir().unwrap();
    for (triggers, most, expected, cut) in [
        (json!([]), 3_500_000, (1..=23).map(|i| i * 150_000).chain([3_600_000]).collect(), false),
        (json!([]), 30, vec![30], true),
        (json!([60, 20, 40, 20]), 60, vec![20, 40, 60], false),
        (json!([60, 20, 40]), 50, vec![20, 40, 50], true),
        (json!([60, 20]), 600, vec![20, 60], false),
    ] {
        let keys =
            json!({"on_the_spot_validation_triggers": triggers, "max_training_sequences": most});
        let plan = plan(&small(folder.path(), keys)).unwrap();
        assert_eq!(plan.options.evaluation.unwrap().triggers, expected);
        let says = |note: &String| note.contains(&format!("the last one comes after {most}"));
        assert_eq!(plan.notes.iter().any(says), cut, "{:?}", plan.notes);
    }
}

/// All keys of all published files, those below `configs` of version 1.1 too, with values of theirs.
const PUBLISHED: &str = r#"{
    "accuracy_averaging_basis": "pertoken",
    "aggregate_metrics_over_steps": 1,
    "att_ffn_placement": [[1, [7, 6]], [2, [6, 7]], [3, [7, 6]], [0, [4, 5]]],
    "attention_heads": 16,
    "available_memory_proportion": [0.2, 1],
    "avg_seq_per_pack": 2,
    "batch_size": 2,
    "batches_per_step": 1,
    "beta1": 0.62,
    "beta1_schedule": {"init": 0.75, "final": 0.4, "num_transition_steps": 1000},
    "beta2": 0.996,
    "checkpoint_dir": "checkpoints/mk2/pod16-closed",
    "disable_fully_connected_pass": true,
    "dropout_prob": 0.1,
    "duplication_factor": 3,
    "embedding_serialization_vocab_steps": 4,
    "enable_half_partials": true,
    "enable_tensorboard": false,
    "encoder_start_ipu": 0,
    "encoder_start_pipeline_stage": 1,
    "engine_cache": "engine_cache/pod16",
    "epochs": 1,
    "epochs_per_save": 1,
    "epochs_to_cache": 1,
    "execution_mode": "PIPELINE",
    "floating_point_exceptions": true,
    "gradient_accumulation_factor": 192,
    "gradient_clipping_norm": 1.0,
    "gradient_reduction_type": "Mean",
    "hidden_size": 1024,
    "input_files": ["data/strategy*"],
    "lamb_m_dtype": "FLOAT16",
    "layers_per_ipu": [3, 7, 7, 7],
    "learning_rate": 0.0004,
    "loss_averaging_basis": "pertoken",
    "loss_scaling": 1,
    "lr_bert_schedule": {"init_lr": 2e-3, "num_training_steps": 1141, "num_warmup_steps": 2},
    "lr_schedule_by_step": {"0": 0.0004, "512": 0.0001},
    "mask_tokens": 76,
    "max_sequences_per_pack": 3,
    "max_training_sequences": 4500000,
    "momentum": 0.984375,
    "no_attn_dropout": true,
    "no_cls_layer": true,
    "no_dropout": false,
    "no_outlining": true,
    "no_validation": true,
    "num_layers": 24,
    "on_the_spot_validation_files": ["data/strategy*"],
    "on_the_spot_validation_triggers": [3000000],
    "optimizer": "LAMB_NO_BIAS",
    "optimizer_state_offchip": true,
    "pipeline_lr_scaling": false,
    "pipeline_momentum_scaling": false,
    "recompute_checkpoint_every_layer": false,
    "batch_serialize": 1,
    "replicated_weight_sharding": false,
    "num_io_tiles": 0,
    "max_copy_merge_size": 32000,
    "popart_dtype": "FLOAT16",
    "projection_bias": true,
    "reduce_nsp_overhead": true,
    "replicated_tensor_sharding": true,
    "replication_factor": 4,
    "sequence_length": 512,
    "shuffle": true,
    "split_linear_layers": false,
    "split_qkv": true,
    "steps_per_log": 40,
    "steps_per_save": 512,
    "stochastic_rounding": true,
    "submission_division": "closed",
    "submission_platform": "ipu-pod16-POPART-closed",
    "task": "PRETRAINING",
    "tf_checkpoint": "tf-checkpoints/bs64k_32k_ckpt/model.ckpt-28252",
    "use_default_available_memory_proportion": true,
    "use_prepacked_pretraining_dataset": true,
    "velocity_scaling": 20.0,
    "vocab_length": 30912,
    "weight_decay": 1e-2
}"#;

#[test]
fn every_published_key_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let mut keys: Value = serde_json::from_str(PUBLISHED).unwrap();
    let all = keys.as_object_mut().unwrap();
    for alone in ["input_files", "on_the_spot_validation_files", "beta1", "lr_schedule_by_step"] {
        let value = all.remove(alone).unwrap();
        Settings::default().set(alone, value).unwrap();
    }
    let settings = small(folder.path(), keys);
    let plan = plan(&settings).unwrap();
    assert_eq!(plan.options.train.save_every, 512);
    let said = plan.notes.join("\n");
    for (key, ..) in settings.elsewhere() {
        assert!(said.contains(&format!("`{key}`")), "{key}");
    }
    // What frazil itself calls otherwise counts more.
    let mut settings = settings;
    settings.set("save_every", 7).unwrap();
    assert_eq!(super::plan(&settings).unwrap().options.train.save_every, 7);
}

/// Keys that bert.py has since 1.1 tell it from 1.0; its open submissions say nothing of averages.
#[test]
fn versions_are_told_by_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let is_v1_1 = |keys: Value| plan(&small(folder.path(), keys)).unwrap().is_v1_1;
    let open = json!({
        "encoder_start_pipeline_stage": 1,
        "att_ffn_placement": [[1, [7, 6]], [0, [6, 7]]],
        "reduce_nsp_overhead": true,
    });
    assert!(is_v1_1(open));
    assert!(is_v1_1(json!({"gradient_clipping_norm": 1.0})));
    assert!(is_v1_1(json!({"loss_averaging_basis": "persequence"})));
    assert!(!is_v1_1(json!({"gradient_clipping_norm": null, "encoder_start_ipu": 0})));
    for (name, settings) in published(folder.path()) {
        assert!(!plan(&settings).unwrap().is_v1_1, "{name}");
    }
}

/// As bert.py has it: `no_dropout` is for attention, too, whose rate is that of all else if it has none.
#[test]
fn dropout_is_left_out_everywhere_or_on_attention() {
    let folder = tempfile::tempdir().unwrap();
    for (keys, expected) in [
        (json!({}), [0.1, 0.1]),
        (json!({"no_dropout": true}), [0.0, 0.0]),
        (json!({"no_attn_dropout": true}), [0.1, 0.0]),
        (json!({"dropout_prob": 0.3}), [0.3, 0.3]),
        (json!({"dropout_prob": 0.3, "attn_dropout_prob": 0.2}), [0.3, 0.2]),
        (json!({"no_dropout": true, "attn_dropout_prob": 0.2}), [0.0, 0.0]),
    ] {
        let config = plan(&small(folder.path(), keys.clone())).unwrap().options.train.config;
        let found = [config.hidden_dropout_prob, config.attention_probs_dropout_prob];
        assert_eq!(found, expected, "{keys}");
    }
}

/// What whoever knows bert.py may not expect is said where a key is given, or is missing.
#[test]
fn differences_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let clips = "`gradient_clipping_norm`: what is clipped is the gradient of the mean";
    let reduces = "`gradient_reduction_type` is not given";
    let apart =
        "`split_qkv`: query, key and value are stored apart all the same, each with a ratio";
    let packs = "`global_batch_size` counts packs: a step has about 16 sequences";
    let refused = "`reduce_nsp_overhead`: MLPerf's checker of 1.1 will refuse the log";
    let v1_1 = |division: &str| {
        let reduced = json!({"reduce_nsp_overhead": true, "loss_averaging_basis": "pertoken"});
        let mut all = reduced.as_object().unwrap().clone();
        all.insert("submission_division".to_owned(), division.into());
        Value::Object(all)
    };
    let mean = json!({"replication_factor": 2, "gradient_reduction_type": "Mean"});
    for (keys, note, is_said) in [
        (json!({"gradient_clipping_norm": 1.0}), clips, true),
        (json!({"gradient_clipping_norm": null}), clips, false),
        (json!({"gradient_accumulation_factor": 2}), reduces, true),
        (json!({"replication_factor": 2}), reduces, true),
        (mean, reduces, false),
        (json!({"batch_size": 2}), reduces, false),
        (json!({"split_qkv": false}), apart, true),
        (json!({"split_qkv": true}), apart, false),
        (json!({"split_qkv": true}), "`split_qkv`: query, key and value are one product", true),
        (json!({"global_batch_size": 8, "avg_seq_per_pack": 2}), packs, true),
        (json!({"global_batch_size": 16}), packs, false),
        (v1_1("closed"), refused, true),
        (v1_1("open"), refused, false),
        (json!({"reduce_nsp_overhead": true}), refused, false),
    ] {
        let notes = plan(&small(folder.path(), keys.clone())).unwrap().notes;
        assert_eq!(notes.iter().any(|said| said.starts_with(note)), is_said, "{keys}: {notes:?}");
    }
}

/// A global batch is one of packs, and what is logged is one of sequences.
#[test]
fn a_global_batch_has_packs() {
    let folder = tempfile::tempdir().unwrap();
    let batch = |packs: u64| {
        let keys = json!({"batch_size": 2, "replication_factor": 4, "avg_seq_per_pack": 2});
        let mut settings = small(folder.path(), keys);
        settings.set("global_batch_size", packs).unwrap();
        plan(&settings)
    };
    let plan = batch(1536).unwrap();
    assert_eq!((plan.options.train.accumulate, plan.global_batch), (192 * 4, 3072));
    let logged = |name: &str| plan.logged.iter().find(|(key, _)| *key == name).unwrap().1.clone();
    assert_eq!(logged("gradient_accumulation_steps"), 192);
    assert_eq!(logged("global_batch_size"), 3072);
    let error = batch(12).unwrap_err();
    assert_eq!(error.hint().as_deref(), Some("give a multiple of 8"));
}

/// Before the first step of a table, the rate is that of all.
#[test]
fn tables_of_rates_begin_with_the_rate_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let rates = |keys: Value| {
        let plan = plan(&small(folder.path(), keys)).unwrap();
        let says = plan.notes.iter().any(|note| note.starts_with("`learning_rate` (no effect)"));
        ([0, 2, 3, 5].map(|step| plan.options.train.schedule.rate(step)), says)
    };
    let late = json!({"3": 1e-3, "5": 5e-4});
    let given = json!({"learning_rate": 7e-3, "lr_schedule_by_step": late});
    assert_eq!(rates(given), ([7e-3, 7e-3, 1e-3, 5e-4], false));
    assert_eq!(rates(json!({"lr_schedule_by_step": late})), ([8e-4, 8e-4, 1e-3, 5e-4], false));
    let first = json!({"learning_rate": 7e-3, "lr_schedule_by_step": {"0": 1e-3, "5": 5e-4}});
    assert_eq!(rates(first), ([1e-3, 1e-3, 1e-3, 5e-4], true));
}

/// The defaults of bert.py, where frazil can have them.
#[test]
fn momentum_is_dampened_as_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let sgd = |keys: Value| {
        let plan = plan(&small(folder.path(), keys)).unwrap();
        let Method::Sgd(sgd) = plan.options.train.optimizer.method else { panic!("not SGD") };
        (sgd.momentum, sgd.dampening)
    };
    assert_eq!(sgd(json!({})), (0.984375, 0.984375));
    assert_eq!(sgd(json!({"momentum": 0.5})), (0.5, 0.5));
    assert_eq!(sgd(json!({"dampening": 0.0})), (0.984375, 0.0));
}

/// Numbers that nothing could come of, and sizes that no memory has.
#[test]
fn numbers_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let betas = json!({"init": 0.6, "final": 1.5, "num_transition_steps": 4});
    for (keys, part) in [
        (json!({"beta1_schedule": betas}), "`final` of `beta1_schedule` is 1.5"),
        (json!({"layer_norm_eps": -1.0}), "`layer_norm_eps` is -1"),
        (json!({"replication_factor": u64::MAX}), "a step has more than 16777216 sequences"),
        (json!({"global_batch_size": u64::MAX}), "a step has more than 16777216 sequences"),
    ] {
        let said = plan(&small(folder.path(), keys)).unwrap_err().to_string();
        assert!(said.contains(part), "{said}");
    }
}

/// A published configuration with files that exist.
fn published(folder: &Path) -> Vec<(String, Settings)> {
    let Some(configs) = shared("data/mlperf/v1.0/Graphcore/configs") else { return Vec::new() };
    std::fs::write(folder.join("strategy_0"), "").unwrap();
    let files = folder.join("strategy*").display().to_string();
    let mut all = Vec::new();
    for entry in std::fs::read_dir(configs).unwrap() {
        let path = entry.unwrap().path();
        let mut settings = Settings::read(&path).unwrap();
        settings.set("input_files", json!([&files])).unwrap();
        settings.set("on_the_spot_validation_files", json!([&files])).unwrap();
        all.push((path.file_stem().unwrap().to_string_lossy().into_owned(), settings));
    }
    all
}

#[test]
fn published_configurations_are_understood() {
    let folder = tempfile::tempdir().unwrap();
    for (name, settings) in published(folder.path()) {
        let plan = plan(&settings).unwrap();
        let train = &plan.options.train;
        let expected = if name == "pod16-open" { 1536 } else { 3072 };
        assert_eq!(plan.global_batch, expected, "{name}");
        assert_eq!((train.config.num_hidden_layers, train.config.hidden_size), (24, 1024));
        assert_eq!(train.config.intermediate_size, 4096);
        assert_eq!(train.config.attention_probs_dropout_prob, 0.0);
        assert_eq!(train.config.hidden_dropout_prob, 0.1);
        let form = Form { basis: Basis::Sequence, vocabulary: Some(30400), padding: None };
        assert_eq!(train.form, form);
        assert_eq!(train.reading.duplication_factor, 3);
        let Method::Lamb(lamb) = train.optimizer.method else { panic!("{name}: not LAMB") };
        assert!(!lamb.adam.bias_correction && lamb.adam.epsilon == 1e-6);
        assert_eq!(train.beta1.is_some(), name == "pod16-open");
        let Schedule::Linear(schedule) = &train.schedule else { panic!("{name}: no schedule") };
        assert_eq!(schedule.steps, if name == "pod16-open" { 1300 } else { 1127 });
        // Nothing that was given is passed over.
        let said = plan.notes.join("\n");
        for (key, ..) in settings.elsewhere() {
            assert!(said.contains(&format!("`{key}`")), "{name}: {key}");
        }
        let plans = settings.text("engine_cache").map(PathBuf::from);
        assert!(plans.is_some() && train.plans == plans, "{name}");
    }
}

/// What version 1.1 has beside these keys.
#[test]
fn version_1_1_is_understood() {
    let folder = tempfile::tempdir().unwrap();
    for (name, mut settings) in published(folder.path()) {
        let more = json!({
            "loss_averaging_basis": "pertoken",
            "accuracy_averaging_basis": "pertoken",
            "encoder_start_pipeline_stage": 1,
            "att_ffn_placement": [[1, [7, 6]], [2, [6, 7]], [3, [7, 6]], [0, [4, 5]]],
            "vocab_length": 30912,
            "lamb_m_dtype": "FLOAT16",
            "reduce_nsp_overhead": true,
            "loss_scaling": 1.0,
            "gradient_clipping_norm": 1.0,
        });
        for (key, value) in more.as_object().unwrap() {
            settings.set(key, value.clone()).unwrap();
        }
        let plan = plan(&settings).unwrap();
        let train = &plan.options.train;
        assert_eq!((train.head, train.form.basis), (Head::Mlm, Basis::Token), "{name}");
        assert_eq!(train.config.vocab_size, 30912);
        assert_eq!(train.optimizer.clip_norm, Some(1.0));
        assert!(plan.is_v1_1);
        // All that the rules of 1.1 want to be logged, but for the head that is left out: embeddings,
        // layers, the pooler that is carried along, masked pieces.
        assert_eq!(plan.weights.len(), 5 + 24 * 16 + 2 + 5);
        assert_eq!(plan.weights[0], "bert/embeddings/word_embeddings");
    }
}

#[test]
fn mistakes_are_named() {
    let mut settings = Settings::default();
    let said = |error: Error| format!("{error}; {}", error.hint().unwrap_or_default());
    let unknown = said(settings.set("batch_sizes", 2).unwrap_err());
    assert_eq!(unknown, "there is no key `batch_sizes`; did you mean `batch_size`?");
    // A key without a default may be told to have no value.
    settings.set("ff_size", 7).unwrap();
    settings.set("ff_size", Value::Null).unwrap();
    assert!(!settings.is_given("ff_size"));
    let null = said(settings.set("batch_size", Value::Null).unwrap_err());
    assert!(null.starts_with("`batch_size` is null"), "{null}");
    let kind = said(settings.set("batch_size", "two").unwrap_err());
    assert!(
        kind.starts_with("`batch_size` is \"two\", a whole number from 0 on expected"),
        "{kind}"
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.json");
    std::fs::write(&path, "{\"beta1\": \"0.9\"}").unwrap();
    let error = said(Settings::read(&path).unwrap_err());
    assert!(error.contains("c.json") && error.contains("a number expected"), "{error}");
    std::fs::write(&path, "{").unwrap();
    assert!(said(Settings::read(&path).unwrap_err()).contains("is no JSON"));
    let mut flags = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        settings.flags(&words, &mut |_, _| Ok(None))
    };
    flags(&["--batch-size", "2", "--shuffle", "--input-files", "a", "b", "--no-dropout=false"])
        .unwrap();
    flags(&["--lr-bert-schedule", "{\"init_lr\": 1e-3}", "--shuffle", "false"]).unwrap();
    assert!(said(flags(&["--bath-size", "2"]).unwrap_err()).contains("did you mean `batch-size`?"));
    assert!(said(flags(&["--batch-size"]).unwrap_err()).contains("needs a whole number"));
    assert!(said(flags(&["batch"]).unwrap_err()).contains("is no flag"));
    let tables = "--lr-schedule-by-step 0:0.001 5:1e-4 --beta1-schedule init:.9 final:.8 \
                  num_transition_steps:40";
    flags(&tables.split_whitespace().collect::<Vec<_>>()).unwrap();
    let pair = said(flags(&["--lr-schedule-by-step", "0:0.001", "5"]).unwrap_err());
    assert!(pair.contains("is \"0:0.001 5\", a table"), "{pair}");
    flags(&["--layers-per-ipu", "3", "7", "--available-memory-proportion", ".2", "1"]).unwrap();
    flags(&["--dtype", "FLOAT", "--on-the-spot-validation-triggers", "--task=SQUAD"]).unwrap();
    assert!(said(flags(&["--layers-per-ipu", "3", "x"]).unwrap_err()).contains("whole numbers"));
    assert_eq!(settings.get("layers_per_ipu"), Some(json!([3, 7])));
    assert_eq!(settings.get("available_memory_proportion"), Some(json!([0.2, 1])));
    assert_eq!(settings.get("on_the_spot_validation_triggers"), Some(json!([])));
    assert_eq!(settings.text("popart_dtype").as_deref(), Some("FLOAT"));
    let steps = settings.get("lr_schedule_by_step");
    assert_eq!(steps, Some(json!({"0": 0.001, "5": 1e-4})));
    assert_eq!(settings.table("beta1_schedule").unwrap()["num_transition_steps"], 40);
    // A flag counts more than what a file says of the same by another key.
    let mut file = Settings::default();
    file.set("lr_bert_schedule", json!({"init_lr": 1.0})).unwrap();
    file.set("beta1", 0.5).unwrap();
    file.merge(&settings);
    assert!(file.is_given("lr_bert_schedule") && !file.is_given("beta1"));
    assert_eq!(settings.texts("input_files"), ["a", "b"]);
    assert!(!settings.truth("shuffle") && settings.size("batch_size") == 2);
    let refused = |key: &str, value: Value| {
        let mut settings = Settings::default();
        settings.set(key, value).unwrap();
        said(plan(&settings).unwrap_err())
    };
    assert!(refused("task", "SQUAD".into()).contains("finetune"));
    assert!(refused("gradient_reduction_type", "Sum".into()).contains("Mean"));
    assert!(refused("synthetic_data", true.into()).contains("input_files"));
    assert!(
        refused("inference", true.into()).contains("can only be false; `frazil run_pretraining")
    );
    assert!(
        refused("scale_loaded_optimizer_state", 0.5.into()).contains("is 0.5, and can only be 1")
    );
    let mut same = Settings::default();
    same.set("scale_loaded_optimizer_state", 1.0).unwrap();
    assert!(said(plan(&same).unwrap_err()).contains("nothing to train on"));
    assert!(refused("global_batch_size", 0.into()).contains("multiple"));
    assert!(refused("seed", 1.into()).contains("nothing to train on"));
    assert!(refused("duplication_factor", 0.into()).contains("`duplication_factor` is 0"));
    assert!(refused("max_sequences_per_pack", 0.into()).contains("`max_sequences_per_pack` is 0"));
    let folder = tempfile::tempdir().unwrap();
    let table = |key: &str, value: Value| {
        said(plan(&small(folder.path(), json!({ key: value }))).unwrap_err())
    };
    let rate = json!({"init_lr": 1e-3, "num_train_steps": 4, "num_warmup_steps": 0});
    assert_eq!(
        table("lr_bert_schedule", rate),
        "`lr_bert_schedule` has no entry `num_train_steps`; did you mean `num_training_steps`?"
    );
    assert_eq!(
        table("beta1_schedule", json!({"init": 0.9, "final": 0.8})),
        "`beta1_schedule` lacks `num_transition_steps`; its entries are `init`, `final`, \
         `num_transition_steps`"
    );
    assert!(table("lr_schedule_by_step", json!({})).contains("has no rates"));
}
