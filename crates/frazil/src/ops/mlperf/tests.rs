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
        let Schedule::Bert(schedule) = &train.schedule else { panic!("{name}: no schedule") };
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
    assert!(refused("global_batch_size", 0.into()).contains("multiple"));
    assert!(refused("seed", 1.into()).contains("nothing to train on"));
}
