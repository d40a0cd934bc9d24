//! Recipe 5's YAML as it stands, every key of the original, and everything that can be wrong.

use frazil_tune::config::{Approach, Criterion, NamePattern, Objective, Strategy};
use frazil_tune::{Algorithm, Config, Error, Granularity, Precision};
use proptest::prelude::*;

/// The block of recipe 5.
const RECIPE: &str = include_str!("fixtures/bert.yaml");

/// What the original shipped beside it.
const SHIPPED: &str = "\
model:
  name: bert
  framework: tensorflow
  inputs: input_file, batch_size
  outputs: IteratorGetNext:3, unstack:0, unstack:1
evaluation:
  accuracy: &acc
    metric:
      SquadF1:
    dataloader:
      batch_size: 64
      dataset:
        bert:
          root: eval.tf_record
          label_file: dev-v1.1.json
    postprocess:
      transform:
        SquadV1:
          label_file: dev-v1.1.json
          vocab_file: vocab.txt
  performance:
    iteration: 50
    configs:
        num_of_instance: 7
        cores_per_instance: 4
        inter_num_of_threads: 1
        kmp_blocktime: 1
    dataloader:
      batch_size: 64
      dataset:
        bert:
          root: eval.tf_record
          label_file: dev-v1.1.json
quantization:
  calibration:
    sampling_size: 500
    dataloader:
      batch_size: 64
      dataset:
        bert:
          root: eval.tf_record
          label_file: dev-v1.1.json
  model_wise:
    weight:
      granularity: per_channel
  op_wise: {
             'MatMul': {
               'activation':  {'dtype': ['fp32']},
               'weight':  {'dtype': ['fp32']},
             }
           }
tuning:
  accuracy_criterion:
    relative:  0.01
  exit_policy:
    timeout: 0
    max_trials: 100
  random_seed: 9527
";

fn with(more: &str) -> Result<Config, Error> {
    Config::parse(&format!("model: {{name: m, framework: tensorflow}}\n{more}"))
}

fn noted(config: &Config, path: &str) -> bool {
    config.notes.iter().any(|note| note.path == path)
}

#[test]
fn the_recipe_as_it_stands() {
    let config = Config::parse(RECIPE).unwrap();
    assert_eq!(config.model.inputs, ["input_file", "batch_size"]);
    assert_eq!(config.model.outputs, ["IteratorGetNext:3", "unstack:0", "unstack:1"]);
    let quantization = &config.quantization;
    assert_eq!(quantization.sampling_sizes, [500]);
    assert_eq!(quantization.model_wise.weight.granularity, Some(vec![Granularity::Channel]));
    let [matmul] = quantization.op_wise.as_slice() else { panic!("one wish") };
    assert!(matmul.names.matches("MatMul") && !matmul.names.matches("MatMul_1"));
    assert!(!matmul.names.is_pattern());
    assert_eq!(matmul.wish.weight.precision, Some(vec![Precision::F32]));
    assert_eq!(matmul.wish.activation.precision, Some(vec![Precision::F32]));
    assert_eq!(config.tuning.criterion, Criterion::Relative(0.01));
    assert_eq!((config.tuning.timeout, config.tuning.max_trials), (0, 100));
    assert_eq!(config.tuning.random_seed, 9527);
    assert_eq!(config.tuning.strategy, Strategy::Sensitivity);
    assert_eq!(config.tuning.workspace, "./lpot_workspace/tensorflow/bert/");
    // The one note says that nobody asked for a strategy.
    assert_eq!(config.notes.len(), 1);
    assert!(noted(&config, "tuning.strategy"));
}

#[test]
fn the_shipped_file() {
    let config = Config::parse(SHIPPED).unwrap();
    let accuracy = config.accuracy.as_ref().unwrap();
    assert_eq!(accuracy.metric.as_ref().unwrap().name, "SquadF1");
    assert_eq!(accuracy.postprocess[0].name, "SquadV1");
    assert_eq!(accuracy.postprocess[0].settings["vocab_file"], "vocab.txt");
    let performance = config.performance.as_ref().unwrap();
    assert_eq!((performance.warmup, performance.iterations), (5, Some(50)));
    assert_eq!((performance.instances.cores, performance.instances.instances), (Some(4), Some(7)));
    let loader = config.quantization.dataloader.as_ref().unwrap();
    assert_eq!((loader.batch_size, loader.discard_last), (64, false));
    assert_eq!(loader.dataset.as_ref().unwrap().settings["root"], "eval.tf_record");
    assert!(noted(&config, "evaluation.performance.configs.kmp_blocktime"));
    assert!(noted(&config, "evaluation.performance.configs.inter_num_of_threads"));
    let blocktime = config.notes.iter().find(|n| n.path.ends_with("kmp_blocktime")).map(|n| n.line);
    assert_eq!(blocktime, Some(27));
}

#[test]
fn defaults_are_those_of_the_original() {
    let config = with("").unwrap();
    assert_eq!(config.quantization.approach, Approach::Static);
    assert_eq!(config.quantization.sampling_sizes, [100]);
    assert!(config.quantization.bias_correction && config.quantization.first_matmul);
    assert_eq!(config.quantization.migration, None);
    assert_eq!(config.tuning.objective, Objective::Performance);
    assert_eq!(config.tuning.random_seed, 1978);
    assert!(config.tuning.higher_is_better && !config.tuning.performance_only);
    assert!(config.accuracy.is_none() && config.performance.is_none());
    let config = with("evaluation: {performance: , accuracy: }").unwrap();
    assert_eq!(config.performance.as_ref().unwrap().warmup, 5);
    assert_eq!(config.performance.unwrap().iterations, None);
}

#[test]
fn every_key_is_read_or_noted() {
    let config = with("\
device: gpu
graph_optimization: {precisions: 'fp32, bf16', op_wise: {}}
pruning: {train: {}}
quantization:
  approach: post_training_auto_quant
  train: {optimizer: {}}
  advance: {bias_correction: weight_empirical}
  calibration: {sampling_size: '50, 100'}
  recipes:
    scale_propagation_max_pooling: False
    scale_propagation_concat: True
    first_conv_or_matmul_quantization: False
    smooth_quant: True
    smooth_quant_args: {alpha: 0.7}
  model_wise:
    weight: {granularity: [per_tensor, per_channel], scheme: asym, dtype: uint8, algorithm: 'minmax, kl', bit: 6.5}
    activation: {granularity: per_channel, scheme: sym, dtype: [int8, bf16], algorithm: [kl, percentile_99.9, mse]}
tuning:
  strategy: {name: tpe, accuracy_weight: 2, latency_weight: 0.5}
  accuracy_criterion: {absolute: 0.5%, higher_is_better: False}
  objective: footprint
  exit_policy: {timeout: 60, max_trials: 7, performance_only: True}
  tensorboard: True
  workspace: {path: here, resume: here/history}
evaluation:
  accuracy:
    metric: {topk: 1}
    configs: {cores_per_instance: 4, num_of_instance: 2, intra_num_of_threads: 3, kmp_affinity: 'x,y'}
    dataloader: {batch_size: 8, last_batch: discard, dataset: {ImageFolder: {root: x}}, filter: {}, transform: {Cast: {}}}
  performance: {warmup: 0, iteration: -1}
")
    .unwrap();
    let q = &config.quantization;
    assert_eq!((q.approach, q.sampling_sizes.as_slice()), (Approach::Auto, &[50, 100][..]));
    assert_eq!((q.first_matmul, q.migration), (false, Some(0.7)));
    assert_eq!(q.model_wise.weight.algorithm, Some(vec![Algorithm::MinMax, Algorithm::Kl]));
    assert_eq!(
        q.model_wise.activation.algorithm,
        Some(vec![Algorithm::Kl, Algorithm::Percentile(99.9), Algorithm::Mse])
    );
    assert_eq!(q.model_wise.activation.precision, Some(vec![Precision::Int8, Precision::F32]));
    assert_eq!(q.model_wise.weight.largest, Some(89)); // 2^6.5 - 1
    let t = &config.tuning;
    assert_eq!((t.strategy, t.accuracy_weight, t.latency_weight), (Strategy::Tpe, 2.0, 0.5));
    assert_eq!((t.criterion, t.higher_is_better), (Criterion::Absolute(0.005), false));
    assert_eq!((t.timeout, t.max_trials, t.performance_only), (60, 7, true));
    assert_eq!((t.workspace.as_str(), t.resume.as_deref()), ("here", Some("here/history")));
    for path in [
        "device",
        "graph_optimization",
        "pruning",
        "quantization.train",
        "quantization.recipes.scale_propagation_max_pooling",
        "quantization.recipes.scale_propagation_concat",
        "quantization.model_wise.weight.scheme",
        "quantization.model_wise.weight.dtype",
        "quantization.model_wise.activation.granularity",
        "quantization.model_wise.activation.scheme",
        "quantization.model_wise.activation.dtype",
        "tuning.tensorboard",
        "evaluation.accuracy.configs.kmp_affinity",
        "evaluation.accuracy.dataloader.dataset.ImageFolder",
        "evaluation.accuracy.dataloader.filter",
        "evaluation.accuracy.dataloader.transform",
    ] {
        assert!(noted(&config, path), "`{path}` is ignored silently: {:#?}", config.notes);
    }
}

#[test]
fn lists_of_sections_are_sections() {
    // The original's reader took the signs of lists away before it parsed.
    let config = with(
        "\
tuning:
  - strategy:
      - name: random
  - exit_policy:
      - timeout: 3
      - max_trials: 4
",
    )
    .unwrap();
    assert_eq!((config.tuning.strategy, config.tuning.timeout), (Strategy::Random, 3));
    // This is YAML only without them.
    let config = with("tuning:\n  random_seed: 1\n- objective: modelsize\n").unwrap();
    assert_eq!(config.tuning.objective, Objective::Modelsize);
    assert!(config.notes.iter().any(|note| note.text.contains("two blanks")));
}

#[test]
fn whatever_is_wrong_is_said_with_its_line() {
    let cases: &[(&str, &str)] = &[
        ("tuning: {strategy: {name: sigopt}}", "line 2: the strategy `sigopt` is a remote"),
        ("tuning:\n  accuracy_criterion: {relative: 0.01, absolute: 1}", "line 3: `tuning.acc"),
        ("tuning:\n  accuracy_criterion: {higher_is_better: True}", "exactly one of `relative`"),
        ("tuning:\n  accuracy_criterion: {relative: -1%}", "must be a number or a percentage"),
        ("tuning:\n  accuracy_criterion: {relative: much}", "not `much`"),
        ("tuning:\n  accuracy_criterion: {relative: .nan}", "must be a number, not `NaN`"),
        ("tuning:\n  accuracy_criterion: {absolute: 1e999}", "must be a number, not `inf`"),
        ("tuning:\n  exit_policy:\n    max_trials: 0", "line 4: `tuning.exit_policy.max_trials`"),
        ("tuning:\n  exit_policy: {max_trials: 1.5}", "must be a whole number from 1 on"),
        ("tuning:\n  exit_policy: {timeout: 99999999999999999999}", "a whole number from 0 on"),
        ("tuning:\n  exit_policy: {performance_only: 3}", "must be `True` or `False`, not `3`"),
        ("tuning:\n  random_seed: x", "line 3: `tuning.random_seed` must be"),
        ("tuning:\n  exit_polizy: {}", "line 3: there is no key `tuning.exit_polizy`"),
        ("tuning: 3", "`tuning` must be a section of keys, not `3`"),
        ("quantization: {approach: quant_aware_training}", "trains the model"),
        ("quantization: {calibration: {sampling_size: 0}}", "a whole number from 1 on"),
        ("quantization: {calibration: {sampling_size: '5, x'}}", "not `5, x`"),
        ("quantization: {calibration: {sampling_size: []}}", "not a list"),
        ("quantization: {model_wise: {weight: {granularity: per_row}}}", "one of `per_channel`"),
        ("quantization: {model_wise: {weight: {algorithm: percentile}}}", "one of `minmax`"),
        ("quantization: {model_wise: {weight: {bit: 8}}}", "up to 7"),
        ("quantization: {model_wise: {activation: {bit: 7}}}", "no key"),
        ("quantization: {model_wise: {weight: {dtype: []}}}", "at least one word"),
        ("quantization:\n  op_wise:\n    'a(b': {}", "line 4: `quantization.op_wise.a(b` is no"),
        ("quantization: {op_wise: {'a(?!b)': {}}}", "is no regular expression"),
        ("quantization: {recipes: {smooth_quant_args: {alpha: 2}}}", "from 0 to 1"),
        ("evaluation: {accuracy: {metric: {F1: , MSE: }}}", "must be one metric"),
        ("evaluation: {accuracy: {metric: {F2: }}}", "there is no key"),
        ("evaluation: {performance: {iteration: 0}}", "from 1 on, or -1"),
        ("evaluation: {accuracy: {dataloader: {dataset: {bert: {task: x}}}}}", "`classifier`"),
        ("modell: {}", "there is no key `modell`"),
        ("device: [", "line"),
        ("device: cpu\ndevice: cpu", "duplicate"),
        ("? [a, b]\n: c", "a key must be text"),
    ];
    for (text, message) in cases {
        let error = with(text).expect_err(text);
        let said = error.to_string();
        assert!(said.contains(message), "{text}\n  says: {said}\n  not: {message}");
    }
    let error = Config::parse("tuning: {}").unwrap_err();
    assert_eq!(error.to_string(), "line 1: the required key `model` is missing");
    let error = Config::parse("model: {name: x}").unwrap_err();
    assert!(error.to_string().contains("`model.framework`"));
    let hint = with("tuning:\n  exit_polizy: {}").unwrap_err().hint();
    assert_eq!(hint.as_deref(), Some("did you mean `exit_policy`?"));
    for text in ["", "3", "- 1\n- 2", "~", "\u{0}", "&a [*a]", "<<: *x"] {
        assert!(Config::parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn hostile_files_are_refused() {
    let deep = "[".repeat(100_000);
    assert!(Config::parse(&deep).is_err());
    assert!(Config::parse(&"a: \n ".repeat(50_000)).is_err());
    assert!(Config::parse(&"- ".repeat(100_000)).is_err());
    let long = format!("model: {}", "x".repeat(2 << 20));
    assert!(matches!(Config::parse(&long), Err(Error::TooLong { .. })));
    let mut laughs = String::from("a: &a [x, x, x, x, x, x, x, x, x, x]\n");
    for (name, last) in "bcdefghij".chars().zip("abcdefghi".chars()) {
        let all = vec![format!("*{last}"); 10].join(", ");
        laughs += &format!("{name}: &{name} [{all}]\n");
    }
    assert!(Config::parse(&laughs).is_err());
    let pattern = format!("quantization: {{op_wise: {{'{}': {{}}}}}}", "(a{1000}){1000}");
    assert!(matches!(with(&pattern), Err(Error::Pattern { .. })));
}

#[test]
fn a_file_names_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bert.yaml");
    assert!(matches!(Config::open(&path), Err(Error::Io { .. })));
    std::fs::write(&path, b"model:\n\xff\xfe").unwrap();
    let Err(Error::InFile { source, .. }) = Config::open(&path) else { panic!("not text") };
    assert!(source.to_string().starts_with("line 2"));
    std::fs::write(&path, RECIPE).unwrap();
    assert_eq!(Config::open(&path).unwrap(), Config::parse(RECIPE).unwrap());
}

proptest! {
    #[test]
    fn percentages_are_hundredths(hundredths in 0u32..10_000) {
        let percent = f64::from(hundredths) / 100.0;
        for text in [format!("{percent}%"), format!("'{percent} %'"), format!("'{percent}%'")] {
            let yaml = format!("tuning: {{accuracy_criterion: {{relative: {text}}}}}");
            let Criterion::Relative(share) = with(&yaml).unwrap().tuning.criterion else {
                panic!("relative")
            };
            prop_assert!((share - percent / 100.0).abs() < 1e-12);
        }
    }

    #[test]
    fn plain_names_mean_themselves(name in "[A-Za-z0-9_./-]{1,20}", other in "[A-Za-z0-9_./-]{1,20}") {
        let pattern = NamePattern::new(&name).unwrap();
        prop_assert!(!pattern.is_pattern() && pattern.matches(&name));
        prop_assert_eq!(pattern.matches(&other), name == other);
    }

    #[test]
    fn patterns_match_from_the_beginning(name in "[a-z]{1,8}", rest in "[a-z/]{0,8}") {
        let pattern = NamePattern::new(&format!("{name}.*")).unwrap();
        let whole = format!("{name}{rest}");
        prop_assert!(pattern.is_pattern() && pattern.matches(&whole));
        let shifted = format!("/{name}{rest}");
        prop_assert!(!pattern.matches(&shifted));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        let _ = Config::parse(&text);
        let _ = with(&text);
        let _ = NamePattern::new(&text);
    }

    #[test]
    fn any_cut_of_a_file_is_read_or_refused(at in 0usize..SHIPPED.len(), more in "[ -~\n]{0,30}") {
        let _ = Config::parse(&format!("{}{more}{}", &SHIPPED[..at], &SHIPPED[at..]));
        let _ = Config::parse(&SHIPPED[..at]);
    }
}
