//! What frazil does, one module for each verb: options in, report out. Nothing here prints.

pub mod bench;
pub mod compile;
pub mod convert;
pub mod create_pretraining_data;
pub mod cut_spec;
pub mod doctor;
pub mod evaluate;
pub mod export_weights;
pub mod extract_features;
pub mod finetune;
pub mod freeze_graph;
pub mod graph;
pub mod hidden;
pub mod import_weights;
pub mod inspect;
pub mod minmax;
pub mod mlperf;
pub(crate) mod model;
pub mod pack;
pub mod plan_cache;
pub mod predict;
pub mod pretrain;
pub mod quantize;
pub mod role;
pub mod run;
pub mod run_classifier;
pub mod shims;
pub mod text_model;
pub mod tokenize;
pub mod train;
pub mod verify;
pub mod verify_weights;

use std::path::Path;

use crate::Result;

/// Makes a folder, and those that it lies in, where they are missing.
pub(crate) fn make_folder(folder: &Path) -> Result<()> {
    let failed =
        |source| frazil_tensor::Error::Io { action: "create", path: folder.to_path_buf(), source };
    Ok(std::fs::create_dir_all(folder).map_err(failed)?)
}
