//! Zips as Google ships BERTs: unpacked to a temporary folder, the large members only when
//! their values are needed.

use std::path::Path;

use frazil_tf::archive::Archive;

use super::folder;
use super::locate::{Kind, Located, Need, parent};
use crate::{Error, Result};

/// What lies in a zip.
pub(super) fn locate(path: &Path, need: Need) -> Result<Located> {
    let archive = Archive::open(path)?;
    let members = archive.entries();
    if !members.is_empty() && members.iter().all(|member| member.name.ends_with(".npy")) {
        return Ok(Located::new(Kind::Npz, path));
    }
    if members.iter().any(|member| member.name.ends_with("data.pkl")) {
        return Err(Error::NotAModel {
            path: path.to_path_buf(),
            found: "a PyTorch file",
            hint: "save it as safetensors: `model.save_pretrained(folder)` writes `model.safetensors`",
        });
    }
    let folder = tempfile::tempdir().map_err(frazil_tf::Error::from)?;
    for member in members {
        if need == Need::Names && is_data(&member.name) {
            continue;
        }
        let to = folder.path().join(&member.name); // the archive refuses names that lead outside
        std::fs::create_dir_all(parent(&to)).map_err(frazil_tf::Error::from)?;
        archive.extract(&member.name, &to, &mut |_| {})?;
    }
    let found = match folder::locate(folder.path(), need) {
        Ok(found) => found,
        Err(Error::NothingInFolder { .. }) => {
            let entries = members.iter().map(|member| member.name.clone()).collect();
            return Err(Error::NothingInFolder { path: path.to_path_buf(), entries });
        }
        Err(error) => return Err(error),
    };
    let mut found = found.kept_in(folder);
    found.notes.clear(); // they name the temporary folder
    Ok(found)
}

/// The members that hold values only.
fn is_data(name: &str) -> bool {
    name.contains(".data-") || name.ends_with(".safetensors")
}
