//! The keys of Graphcore's configurations for MLPerf 1.0 and 1.1, each also a flag: what kind of value it has, and what
//! it means here.
//!
//! One row for each key. A key that frazil has no use for says why; one that is not here is a mistake.

use serde_json::Value;

use Kind::{Any, Count, Counts, Integer, Number, Numbers, Table, Text, Texts, Truth};

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Anything.
    Text,
    /// A whole number from 0 on.
    Count,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Truth,
    /// File names or patterns.
    Texts,
    /// Whole numbers.
    Counts,
    /// Numbers.
    Numbers,
    /// A table of numbers by name.
    Table,
    /// Whatever it is.
    Any,
}

impl Kind {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Text => "a text",
            Count => "a whole number from 0 on",
            Integer => "a whole number",
            Number => "a number",
            Truth => "true or false",
            Texts => "a list of texts",
            Counts => "a list of whole numbers",
            Numbers => "a list of numbers",
            Table => "a table of numbers by name",
            Any => "a value",
        }
    }

    /// What stands for a value in a help text.
    pub fn placeholder(self) -> &'static str {
        match self {
            Text | Any => "VALUE",
            Count | Integer => "N",
            Number => "X",
            Truth => "true|false",
            Texts => "FILE…",
            Counts => "N…",
            Numbers => "X…",
            Table => "JSON|K:X…",
        }
    }

    /// Whether a value is of this kind.
    pub fn has(self, value: &Value) -> bool {
        let all = |of: &dyn Fn(&Value) -> bool| value.as_array().is_some_and(|v| v.iter().all(of));
        match self {
            Text => value.is_string(),
            Count => value.is_u64(),
            Integer => value.is_i64() || value.is_u64(),
            Number => value.is_number(),
            Truth => value.is_boolean(),
            Texts => all(&Value::is_string),
            Counts => all(&Value::is_u64),
            Numbers => all(&Value::is_number),
            Table => value.as_object().is_some_and(|v| v.values().all(Value::is_number)),
            Any => true,
        }
    }

    /// Whether a flag takes all words up to the next flag.
    pub fn is_list(self) -> bool {
        matches!(self, Texts | Counts | Numbers | Table)
    }

    /// Whether a flag without any word is an empty list.
    pub fn may_be_empty(self) -> bool {
        matches!(self, Texts | Counts)
    }
}

/// What a key means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// What it meant there.
    Same,
    /// Something else, in words.
    Mapped(&'static str),
    /// The same if it is true, and something else if it is false: both in words.
    Truth(&'static str, &'static str),
    /// Nothing, and why.
    Declined(&'static str),
}

/// A key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// As it stands in the file; a flag has hyphens.
    pub name: &'static str,
    /// What its value is.
    pub kind: Kind,
    /// What it is if it is not given, as JSON; empty for nothing.
    pub default: &'static str,
    /// What it means.
    pub meaning: Meaning,
    /// What it is for.
    pub help: &'static str,
}

const fn same(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Key {
    Key { name, kind, default, meaning: Meaning::Same, help }
}

const fn mapped(name: &'static str, kind: Kind, to: &'static str) -> Key {
    Key { name, kind, default: "", meaning: Meaning::Mapped(to), help: to }
}

const fn declined(name: &'static str, kind: Kind, why: &'static str) -> Key {
    Key { name, kind, default: "", meaning: Meaning::Declined(why), help: why }
}

const IPU: &str = "there are no IPUs to place layers on";
const STAGES: &str = "there is no pipeline whose stages would see gradients late";
const MEMORY: &str = "memory is planned by frazil, for the CPU";
const SCALE: &str = "in float32 a factor makes no difference";
const DEVICE: &str = "there are no IPUs to choose from";
const HOST: &str = "nothing is sent to IPUs and back";
const INFERENCE: &str = "models are run by `frazil run` and `frazil predict`";
const SQUAD: &str = "`frazil finetune squad` learns SQuAD, and has flags of its own";
const LINEAR: &str = "`lr_bert_schedule` has lines, with its own entries";
const RANKS: &str = "`mpirun` says how many processes there are";
const PROFILE: &str = "`frazil bench --profile` shows where time goes";
const F32: &str = "everything is computed and stored in float32";
const APART: &str = "query, key and value are one product, and stored apart";
const APART_ALL_THE_SAME: &str = "query, key and value are stored apart all the same, each with a \
                                  ratio of LAMB's own; in bert.py they are one tensor then";
const STDERR: &str = "curves are in report.html and in TensorBoard's events, always";

/// All keys.
pub const KEYS: &[Key] = &[
    // The model.
    same("task", Text, "\"PRETRAINING\"", "what is learnt; only PRETRAINING"),
    same("num_layers", Count, "2", "layers"),
    same("hidden_size", Count, "768", "width of a row between layers"),
    same("ff_size", Count, "", "width inside the feed-forward block; four times the hidden size"),
    same("attention_heads", Count, "12", "attention heads of a layer"),
    same("sequence_length", Count, "128", "pieces of a pack"),
    same("max_positional_length", Count, "512", "positions that the model knows"),
    same("mask_tokens", Count, "20", "masked pieces of a sequence, as the files have room for"),
    same("vocab_length", Count, "30400", "pieces that the model knows; others become [UNK]"),
    same("activation_type", Text, "\"Gelu\"", "of the feed-forward block: Gelu, Relu, Tanh"),
    same("layer_norm_eps", Number, "1e-12", "epsilon of LayerNorm; the original's"),
    same("no_dropout", Truth, "false", "no dropout at all"),
    same("dropout_prob", Number, "0.1", "dropout"),
    same("no_attn_dropout", Truth, "false", "no dropout on attention"),
    same("attn_dropout_prob", Number, "", "dropout on attention, if it is not that of all"),
    same("projection_bias", Truth, "true", "a bias on each piece's score; frazil has it always"),
    same("reduce_nsp_overhead", Truth, "false", "no loss of next sentences"),
    // Batches.
    same("batch_size", Count, "1", "packs that are computed at once"),
    same("gradient_accumulation_factor", Count, "", "batches whose gradients are added up"),
    same("replication_factor", Count, "1", "as many times more batches make a step"),
    same("global_batch_size", Count, "", "packs of a step, instead of the two above"),
    same("avg_seq_per_pack", Count, "1", "sequences of a pack, on average: how many a step has"),
    same("max_sequences_per_pack", Count, "1", "sequences of a pack at most"),
    same("gradient_reduction_type", Text, "\"Mean\"", "only Mean; bert.py's own default is Sum"),
    // The optimizer.
    same("optimizer", Text, "\"SGD\"", "SGD, ADAM, ADAM_NO_BIAS, LAMB or LAMB_NO_BIAS"),
    same("learning_rate", Number, "8e-4", "the rate, where no schedule says another"),
    same("lr_bert_schedule", Table, "", "by lines: init_lr, num_training_steps, num_warmup_steps"),
    same("lr_schedule_by_step", Table, "", "the rate from each step on, such as 0:1e-3 500:1e-4"),
    same("lr_schedule_by_epoch", Table, "", "the rate from each pass over the data on"),
    same("loss_scaling", Number, "4", "the factor on the loss"),
    same("weight_decay", Number, "0", "weight decay"),
    same("beta1", Number, "0.9", "how much of the mean gradient stays"),
    same("beta1_schedule", Table, "", "instead: init, final, num_transition_steps"),
    same("beta2", Number, "0.999", "how much of the mean square stays"),
    same("momentum", Number, "0.984375", "of SGD: how much of the way before is gone again"),
    same("dampening", Number, "", "of SGD: how much of a gradient is left out; the momentum"),
    same("max_weight_norm", Number, "", "the most that a weight's norm counts for in LAMB"),
    same(
        "gradient_clipping_norm",
        Number,
        "",
        "gradients of the mean over a step are scaled down to this norm",
    ),
    same("loss_averaging_basis", Text, "\"persequence\"", "persequence or pertoken"),
    same("accuracy_averaging_basis", Text, "\"persequence\"", "persequence or pertoken"),
    // Data.
    same("input_files", Texts, "", "files to train on; patterns are known"),
    same("on_the_spot_validation_files", Texts, "", "files to evaluate on"),
    same(
        "on_the_spot_validation_triggers",
        Counts,
        "[]",
        "evaluate after so many sequences each, the last of which ends the run; []: by MLPerf's rules",
    ),
    same(
        "max_training_sequences",
        Count,
        "6000000",
        "sequences to train on at most; without triggers, up to the first evaluation from there on",
    ),
    same("shuffle", Truth, "false", "in an order by chance"),
    same("duplication_factor", Count, "1", "how often each file has the same text, masked anew"),
    same("tf_checkpoint", Text, "", "the weights to begin with, and what its optimizer remembers"),
    // The run.
    same("seed", Integer, "1984", "of all chance"),
    same("checkpoint_dir", Text, "\"ckpts\"", "where checkpoints, events and report.html go"),
    same(
        "steps_per_log",
        Count,
        "1",
        "steps between two lines of internal logs; if given, also where stderr is no terminal",
    ),
    same("submission_org", Text, "\"frazil\"", "who (frazil only)"),
    same("submission_division", Text, "\"closed\"", "closed or open"),
    same("submission_platform", Text, "\"cpu-frazil\"", "on what"),
    same("submission_run_index", Count, "1", "the number of the file of results"),
    same("results", Text, "\"result\"", "results go to RESULTS/bert/result_N.txt (frazil only)"),
    same("target_accuracy", Number, "0.72", "stop at this accuracy (frazil only)"),
    same("max_steps", Count, "", "stop after so many steps (frazil only)"),
    same(
        "save_every",
        Count,
        "1000",
        "steps between checkpoints, beside those of evaluations (frazil only)",
    ),
    same("keep", Count, "5", "checkpoints that are kept; 0: all (frazil only)"),
    same("engine_cache", Text, "", "a folder where what is computed is planned once for all runs"),
    same("threads", Count, "", "threads (frazil only)"),
    same("recompute", Truth, "false", "less memory for more time (frazil only)"),
    same(
        "packed",
        Truth,
        "true",
        "padding of sequences and of their masked pieces is left out; false: computed (frazil only)",
    ),
    // What is otherwise here.
    mapped("popart_dtype", Text, F32),
    mapped("lamb_m_dtype", Text, F32),
    mapped("log_dir", Text, "events and report.html are in `checkpoint_dir`"),
    mapped("enable_tensorboard", Truth, STDERR),
    mapped("aggregate_metrics_over_steps", Count, STDERR),
    mapped("epochs_per_save", Integer, "checkpoints come with evaluations and by `save_every`"),
    mapped("steps_per_save", Integer, "from 1 on it is `save_every`, if that is not given"),
    mapped("epochs", Count, "`max_training_sequences` and the last evaluation say how long"),
    mapped("floating_point_exceptions", Truth, "no run goes on with a loss that is no number"),
    mapped("use_prepacked_pretraining_dataset", Truth, "the files tell whether they hold packs"),
    mapped("no_validation", Truth, "files to evaluate on are used, and without them none are"),
    Key { meaning: Meaning::Truth(APART, APART_ALL_THE_SAME), ..mapped("split_qkv", Truth, APART) },
    // What has no meaning here.
    declined("encoder_start_ipu", Count, IPU),
    declined("encoder_start_pipeline_stage", Count, IPU),
    declined("layers_per_ipu", Counts, IPU),
    declined("att_ffn_placement", Any, IPU),
    declined("execution_mode", Text, IPU),
    declined("pipeline", Truth, IPU),
    declined("virtual_graph", Truth, IPU),
    declined("phased_execution", Truth, IPU),
    declined("device_id", Any, IPU),
    declined("batches_per_step", Count, "steps are taken one by one"),
    declined("stochastic_rounding", Truth, "float32 is rounded to nearest"),
    declined("enable_half_partials", Truth, F32),
    declined("optimizer_state_offchip", Truth, MEMORY),
    declined("replicated_tensor_sharding", Truth, MEMORY),
    declined("embedding_serialization_vocab_steps", Count, MEMORY),
    declined("available_memory_proportion", Numbers, MEMORY),
    declined("use_default_available_memory_proportion", Truth, MEMORY),
    declined("disable_fully_connected_pass", Truth, MEMORY),
    declined("split_linear_layers", Truth, MEMORY),
    declined("no_outlining", Truth, MEMORY),
    declined("epochs_to_cache", Count, "files are mapped, and the system keeps what is used"),
    declined("ls_schedule_by_step", Table, SCALE),
    declined("ls_schedule_by_epoch", Table, SCALE),
    declined("velocity_scaling", Number, SCALE),
    declined("pipeline_lr_scaling", Truth, STAGES),
    declined("pipeline_momentum_scaling", Truth, STAGES),
    declined(
        "no_cls_layer",
        Truth,
        "BERT's layer before the scores of masked pieces is always there",
    ),
    declined("wandb", Truth, "frazil sends nothing anywhere"),
    declined("host_embedding", Text, HOST),
    declined("group_host_syncs", Truth, HOST),
    declined("activation_io_schedule", Text, HOST),
    declined("optimizer_io_schedule", Text, HOST),
    declined("weight_io_schedule", Text, HOST),
    declined("optimizer_schedule", Text, HOST),
    declined("recompute_checkpoint_every_layer", Truth, "`recompute` says what is computed again"),
    declined("activations_on_chip", Truth, MEMORY),
    declined("tensor_storage_onchip", Truth, MEMORY),
    declined("replicated_weight_sharding", Truth, MEMORY),
    declined("internal_exchange_optimisation_target", Text, MEMORY),
    declined("max_copy_merge_size", Integer, MEMORY),
    declined("batch_serialize", Count, MEMORY),
    declined("num_attention_splits", Count, MEMORY),
    declined("num_ffwd_splits", Count, MEMORY),
    declined("split_transformer", Truth, IPU),
    declined("layers_per_phase", Count, IPU),
    declined("num_io_tiles", Count, IPU),
    declined("single_device", Truth, IPU),
    declined("dual_device", Truth, IPU),
    declined("device_connection_type", Text, DEVICE),
    declined("device_version", Text, DEVICE),
    declined("device_tiles", Count, DEVICE),
    declined("device_ondemand_timeout", Count, DEVICE),
    declined("use_ipu_model", Truth, DEVICE),
    declined("report_hw_cycle_count", Truth, DEVICE),
    declined("realtime_scheduler", Truth, "threads run as the system has it"),
    declined("profile", Truth, PROFILE),
    declined("profile_dir", Text, PROFILE),
    declined("profile_instrument", Truth, PROFILE),
    declined("pipeline_lr_scaling_offset", Number, STAGES),
    declined("pipeline_momentum_scaling_offset", Number, STAGES),
    declined("pipeline_dampening_scaling_offset", Number, STAGES),
    declined("lr_warmup_start", Number, LINEAR),
    declined("lr_warmup_steps", Count, LINEAR),
    declined("lr_steps_per_warmup_update", Count, LINEAR),
    declined("lr_steps_per_decay_update", Count, LINEAR),
    declined(
        "continue_training_from_epoch",
        Count,
        "a run goes on where its newest checkpoint was written",
    ),
    declined("no_model_save", Truth, "a run without checkpoints could not go on"),
    declined("log_level", Text, "`--quiet` shows no progress"),
    declined("no_drop_remainder", Truth, SQUAD),
    declined("overwrite_cache", Truth, SQUAD),
    declined("vocab_file", Text, SQUAD),
    declined("do_lower_case", Truth, SQUAD),
    declined("squad_results_dir", Text, SQUAD),
    declined("squad_evaluate_script", Text, SQUAD),
    declined("squad_lr_scale", Number, SQUAD),
    declined("validation_config", Any, SQUAD),
    declined("epochs_inference", Count, INFERENCE),
    declined("variable_weights_inference", Truth, INFERENCE),
    declined("low_latency_inference", Truth, INFERENCE),
    declined("minimum_latency_inference", Truth, INFERENCE),
    declined("inference_lm_perplexity", Truth, INFERENCE),
    declined("mpi_distributed", Truth, RANKS),
    declined("mpi_rank", Count, RANKS),
    declined("mpi_size", Count, RANKS),
    declined("synthetic_data_initializer", Text, "only data from files are learnt"),
    declined("squeeze_model", Truth, "the model is as large as the other keys say"),
    declined("relu_leak", Number, "of an activation that BERT does not have"),
    // What is only as it is.
    same("inference", Truth, "false", "only false: what is learnt is a model in training"),
    same("no_training", Truth, "false", "only false"),
    same("no_mask", Truth, "false", "only false: no sequence sees another, or padding"),
    same("update_embedding_dict", Truth, "true", "only true: all weights are learnt"),
    same("learning_rate_function", Text, "\"Scheduled\"", "only Scheduled"),
    same("scale_loaded_optimizer_state", Number, "1", "only 1"),
    same("generated_data", Truth, "false", "only false: data are learnt"),
    same("synthetic_data", Truth, "false", "only false: data are learnt"),
    declined("onnx_checkpoint", Text, "weights come from `tf_checkpoint`"),
];

/// Flags of bert.py that are not called as their keys: flag and key.
pub const ALIASES: [(&str, &str); 1] = [("dtype", "popart_dtype")];

/// The key of that name.
pub fn find(name: &str) -> Option<&'static Key> {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    let name = alias.map_or(name, |(_, name)| name);
    KEYS.iter().find(|key| key.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_of_its_kind_and_no_key_stands_twice() {
        for (at, key) in KEYS.iter().enumerate() {
            assert!(KEYS[..at].iter().all(|other| other.name != key.name), "{}", key.name);
            if !key.default.is_empty() {
                let value = serde_json::from_str(key.default).unwrap();
                assert!(key.kind.has(&value), "{}", key.name);
            }
        }
    }
}
