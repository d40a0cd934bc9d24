//! The text file `checkpoint` in a model's folder: which checkpoint is the newest, and which
//! older ones are kept.
//!
//! In the file, a path is absolute or relative to the folder; here, paths can be opened as they
//! are, and what lies in the folder is named by the folder. Left out: deciding which checkpoints to delete.

use std::io;
use std::path::{Path, PathBuf};

use frazil_tensor::file;

use crate::{Error, Result, pbtxt, proto};

/// The file's name.
pub const FILE_NAME: &str = "checkpoint";

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckpointState {
    /// Prefix of the newest checkpoint.
    pub model_checkpoint_path: PathBuf,
    /// Prefixes of all that are kept, oldest first.
    pub all_model_checkpoint_paths: Vec<PathBuf>,
    /// When each of them was written, in seconds since 1970; empty in files of TensorFlow before
    /// 1.11.
    pub all_model_checkpoint_timestamps: Vec<f64>,
    /// When the last one was written that is kept for good; 0 if there is none.
    pub last_preserved_timestamp: f64,
}

impl CheckpointState {
    /// The state with `newest` as the newest and only checkpoint.
    pub fn new(newest: impl Into<PathBuf>) -> Self {
        let newest = newest.into();
        let all_model_checkpoint_paths = vec![newest.clone()];
        Self { model_checkpoint_path: newest, all_model_checkpoint_paths, ..Self::default() }
    }

    /// Reads the file in `folder`; `None` if there is none.
    pub fn read(folder: impl AsRef<Path>) -> Result<Option<Self>> {
        let folder = folder.as_ref();
        let path = folder.join(FILE_NAME);
        let bytes = match file::map(&path) {
            Ok(bytes) => bytes,
            Err(frazil_tensor::Error::Io { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                return Ok(None);
            }
            Err(other) => return Err(other.into()),
        };
        Self::parse(&bytes, folder).map(Some).map_err(|e| e.in_file(path))
    }

    fn parse(text: &[u8], folder: &Path) -> Result<Self> {
        let state: proto::CheckpointState = pbtxt::parse_bytes(text)?;
        if state.model_checkpoint_path.is_empty() {
            return Err(Error::NoNewest);
        }
        // Joining keeps an absolute path as it is, if it is one of elsewhere: a checkpoint has one name.
        let place = |path: &String| Ok(folder.join(relative(&folder.join(path), folder)?));
        let all = state.all_model_checkpoint_paths.iter().map(place).collect::<Result<_>>()?;
        Ok(Self {
            model_checkpoint_path: place(&state.model_checkpoint_path)?,
            all_model_checkpoint_paths: all,
            all_model_checkpoint_timestamps: state.all_model_checkpoint_timestamps,
            last_preserved_timestamp: state.last_preserved_timestamp,
        })
    }

    /// Writes the file in `folder`, as TensorFlow does: the newest is the last of all, and what
    /// lies in the folder is named relative to it, so that the folder can be moved.
    pub fn write(&self, folder: impl AsRef<Path>) -> Result<()> {
        let folder = folder.as_ref();
        let text = pbtxt::print(&self.to_proto(folder)?);
        Ok(file::write(folder.join(FILE_NAME), text.as_bytes())?)
    }

    fn to_proto(&self, folder: &Path) -> Result<proto::CheckpointState> {
        let mut all: Vec<String> = self
            .all_model_checkpoint_paths
            .iter()
            .map(|path| relative(path, folder))
            .collect::<Result<_>>()?;
        let newest = relative(&self.model_checkpoint_path, folder)?;
        if all.last() != Some(&newest) {
            all.push(newest.clone());
        }
        // TensorFlow refuses a list of times that is not as long as the list of checkpoints.
        let times = &self.all_model_checkpoint_timestamps;
        let times = if times.len() == all.len() { times.clone() } else { Vec::new() };
        Ok(proto::CheckpointState {
            model_checkpoint_path: newest,
            all_model_checkpoint_paths: all,
            all_model_checkpoint_timestamps: times,
            last_preserved_timestamp: self.last_preserved_timestamp,
        })
    }
}

/// `path` as the file in `folder` names it.
fn relative(path: &Path, folder: &Path) -> Result<String> {
    let absolute = std::path::absolute(path)?;
    let inside = absolute.strip_prefix(std::path::absolute(folder)?).map(Path::to_path_buf);
    let named = inside.unwrap_or(absolute);
    named.into_os_string().into_string().map_err(|name| Error::BadName {
        name: name.to_string_lossy().into_owned(),
        reason: "the file `checkpoint` takes names in UTF-8 only",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `tensorflow.python.training.checkpoint_management` 1.15 writes it.
    const TENSORFLOWS: &str = r#"model_checkpoint_path: "model.ckpt-2"
all_model_checkpoint_paths: "model.ckpt-1"
all_model_checkpoint_paths: "model.ckpt-2"
all_model_checkpoint_timestamps: 1589000000.25
all_model_checkpoint_timestamps: 1589000001.123456
last_preserved_timestamp: 1588999999.5
"#;

    #[test]
    fn written_as_tensorflow_does() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        std::fs::write(dir.join(FILE_NAME), TENSORFLOWS).unwrap();
        let state = CheckpointState::read(dir).unwrap().unwrap();
        assert_eq!(state.model_checkpoint_path, dir.join("model.ckpt-2"));
        assert_eq!(state.all_model_checkpoint_paths[0], dir.join("model.ckpt-1"));
        std::fs::remove_file(dir.join(FILE_NAME)).unwrap();
        state.write(dir).unwrap();
        assert_eq!(std::fs::read_to_string(dir.join(FILE_NAME)).unwrap(), TENSORFLOWS);
    }

    #[test]
    fn absolute_paths_stay_and_the_newest_is_listed() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = CheckpointState::new("/elsewhere/größe \"x\"\\y");
        state.all_model_checkpoint_paths = vec![folder.path().join("old")];
        state.write(&folder).unwrap();
        let text = std::fs::read_to_string(folder.path().join(FILE_NAME)).unwrap();
        let escaped = r#""/elsewhere/gr\303\266\303\237e \"x\"\\y""#;
        assert_eq!(
            text,
            format!(
                "model_checkpoint_path: {escaped}\nall_model_checkpoint_paths: \"old\"\n\
                 all_model_checkpoint_paths: {escaped}\n"
            )
        );
        let read = CheckpointState::read(&folder).unwrap().unwrap();
        assert_eq!(read.model_checkpoint_path, state.model_checkpoint_path);
        assert_eq!(read.all_model_checkpoint_paths.len(), 2);
    }

    /// TensorFlow's plain `Saver` names checkpoints as it was told to, by absolute paths, say.
    #[test]
    fn a_checkpoint_has_one_name() {
        let folder = tempfile::tempdir_in(".").unwrap();
        let dir = Path::new(folder.path().file_name().unwrap());
        let absolute = std::path::absolute(dir).unwrap();
        let of = |step: u32| absolute.join(format!("model.ckpt-{step}")).display().to_string();
        let text = format!(
            "model_checkpoint_path: {:?}\nall_model_checkpoint_paths: {:?}\n\
             all_model_checkpoint_paths: {:?}\n",
            of(2),
            of(1),
            of(2)
        );
        std::fs::write(dir.join(FILE_NAME), text).unwrap();
        let state = CheckpointState::read(dir).unwrap().unwrap();
        assert_eq!(state.model_checkpoint_path, dir.join("model.ckpt-2"));
        let all = ["model.ckpt-1", "model.ckpt-2"].map(|name| dir.join(name));
        assert_eq!(state.all_model_checkpoint_paths, all);
    }

    #[test]
    fn no_file_and_no_sense() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(CheckpointState::read(&folder).unwrap(), None);
        std::fs::write(folder.path().join(FILE_NAME), "").unwrap();
        let error = CheckpointState::read(&folder).unwrap_err();
        assert!(
            matches!(error, Error::InFile { source, .. } if matches!(*source, Error::NoNewest))
        );
        std::fs::write(folder.path().join(FILE_NAME), "model_checkpoint_path: 3").unwrap();
        assert!(CheckpointState::read(&folder).is_err());
    }
}
