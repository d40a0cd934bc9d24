//! Model Optimizer's flags as they are written, nothing of them checked yet.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;

/// Converts a TensorFlow model to OpenVINO's intermediate representation.
#[derive(Clone, Debug, Default, Parser)]
#[command(
    name = "mo",
    infer_long_args = true,
    disable_version_flag = true,
    about = "Model Optimizer's command line: a TensorFlow model to OpenVINO's IR",
    after_help = format!(
        "Shapes of --input are separated by spaces or commas; ? and -1 are dynamic, 1..8 has \
         bounds.\n\n{}",
        super::EXAMPLES
    )
)]
pub struct Flags {
    /// Framework of the model: tf
    #[arg(long, value_name = "NAME")]
    pub framework: Option<String>,
    /// Frozen graph, binary or text
    #[arg(long = "input_model", short = 'm', short_alias = 'w', value_name = "PB")]
    pub input_model: Option<PathBuf>,
    /// The graph is a text file
    #[arg(long = "input_model_is_text")]
    pub input_model_is_text: bool,
    /// Checkpoint, or folder of one, with the values of the graph's variables
    #[arg(long = "input_checkpoint", value_name = "CKPT")]
    pub input_checkpoint: Option<PathBuf>,
    /// MetaGraph; its checkpoint lies beside it
    #[arg(long = "input_meta_graph", value_name = "META")]
    pub input_meta_graph: Option<PathBuf>,
    /// Folder of a SavedModel
    #[arg(long = "saved_model_dir", value_name = "FOLDER")]
    pub saved_model_dir: Option<PathBuf>,
    /// Tags of the MetaGraph in the SavedModel, separated by commas [default: serve]
    #[arg(long = "saved_model_tags", value_name = "TAGS")]
    pub saved_model_tags: Option<String>,

    /// Inputs: [port:]name[:port][shape]{type}->value, separated by commas
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub input: Option<String>,
    /// Shapes of the inputs: [1,128],[1,128]
    #[arg(long = "input_shape", value_name = "LIST", allow_hyphen_values = true)]
    pub input_shape: Option<String>,
    /// Outputs, separated by commas
    #[arg(long, value_name = "LIST")]
    pub output: Option<String>,
    /// Replaces axis 0 of every input
    #[arg(long, short = 'b', value_name = "N", allow_hyphen_values = true)]
    pub batch: Option<String>,
    /// Inputs that become constants: name->value, separated by commas
    #[arg(long = "freeze_placeholder_with_value", value_name = "LIST")]
    pub freeze_placeholder_with_value: Option<String>,
    /// Makes shape arithmetic constant
    #[arg(long = "static_shape")]
    pub static_shape: bool,

    /// FP16 or half compresses the weights; FP32 or float does not
    #[arg(long = "data_type", value_name = "TYPE")]
    pub data_type: Option<String>,
    /// Compresses the weights to FP16
    #[arg(
        long = "compress_to_fp16",
        value_name = "BOOL",
        num_args = 0..=1,
        default_missing_value = "True"
    )]
    pub compress_to_fp16: Option<String>,
    /// Name of the network and of its files
    #[arg(long = "model_name", short = 'n', value_name = "NAME")]
    pub model_name: Option<String>,
    /// Folder of the results, made if it is not there
    #[arg(long = "output_dir", short = 'o', value_name = "FOLDER")]
    pub output_dir: Option<PathBuf>,

    /// CRITICAL, ERROR, WARN, WARNING, INFO, DEBUG or NOTSET; INFO and below show what was done
    #[arg(long = "log_level", value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// No remarks on the way
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "True")]
    pub silent: Option<String>,
    /// Shows the version
    #[arg(long)]
    pub version: bool,

    // What follows has no effect here, or is refused; `plan` says which and why.
    #[arg(long = "mean_values", value_name = "LIST", hide = true, allow_hyphen_values = true)]
    pub mean_values: Option<String>,
    #[arg(long = "scale_values", value_name = "LIST", hide = true, allow_hyphen_values = true)]
    pub scale_values: Option<String>,
    #[arg(long, short = 's', value_name = "X", hide = true, allow_hyphen_values = true)]
    pub scale: Option<String>,
    #[arg(long = "reverse_input_channels", hide = true)]
    pub reverse_input_channels: bool,
    #[arg(long, value_name = "LIST", hide = true)]
    pub layout: Option<String>,
    #[arg(long = "source_layout", value_name = "LIST", hide = true)]
    pub source_layout: Option<String>,
    #[arg(long = "target_layout", value_name = "LIST", hide = true)]
    pub target_layout: Option<String>,
    #[arg(long, value_name = "LIST", hide = true)]
    pub transform: Option<String>,
    #[arg(long, value_name = "LIST", hide = true)]
    pub extensions: Option<String>,
    #[arg(long = "transformations_config", value_name = "JSON", hide = true)]
    pub transformations_config: Option<OsString>,
    #[arg(long = "tensorflow_custom_operations_config_update", value_name = "JSON", hide = true)]
    pub tensorflow_custom_operations_config_update: Option<OsString>,
    #[arg(long = "tensorflow_use_custom_operations_config", value_name = "JSON", hide = true)]
    pub tensorflow_use_custom_operations_config: Option<OsString>,
    #[arg(
        long = "tensorflow_object_detection_api_pipeline_config",
        value_name = "CONFIG",
        hide = true
    )]
    pub tensorflow_object_detection_api_pipeline_config: Option<OsString>,
    #[arg(long = "tensorboard_logdir", value_name = "FOLDER", hide = true)]
    pub tensorboard_logdir: Option<OsString>,
    #[arg(long = "tensorflow_custom_layer_libraries", value_name = "LIST", hide = true)]
    pub tensorflow_custom_layer_libraries: Option<OsString>,
    #[arg(long, hide = true)]
    pub progress: bool,
    #[arg(long = "stream_output", hide = true)]
    pub stream_output: bool,
    #[arg(long = "use_new_frontend", hide = true)]
    pub use_new_frontend: bool,
    #[arg(long = "use_legacy_frontend", hide = true)]
    pub use_legacy_frontend: bool,
    #[arg(long = "disable_nhwc_to_nchw", hide = true)]
    pub disable_nhwc_to_nchw: bool,
    #[arg(long = "disable_fusing", hide = true)]
    pub disable_fusing: bool,
    #[arg(long = "disable_resnet_optimization", hide = true)]
    pub disable_resnet_optimization: bool,
    #[arg(long = "disable_gfusing", hide = true)]
    pub disable_gfusing: bool,
    #[arg(long = "finegrain_fusing", value_name = "REGEX", hide = true)]
    pub finegrain_fusing: Option<String>,
    #[arg(long = "enable_concat_optimization", hide = true)]
    pub enable_concat_optimization: bool,
    #[arg(long = "disable_weights_compression", hide = true)]
    pub disable_weights_compression: bool,
}

impl Flags {
    /// Reads the words behind `mo`.
    pub fn parse_words(words: &[OsString]) -> Result<Self, clap::Error> {
        // The one short flag of two letters, which would be two flags here.
        let words = words.iter().map(|word| match word.to_str() {
            Some("-ms") => "--mean_values".into(),
            _ => word.clone(),
        });
        Self::try_parse_from(std::iter::once("mo".into()).chain(words))
    }
}
