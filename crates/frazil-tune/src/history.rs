//! All that was measured, on disk as soon as it is known.
//!
//! A folder holds `history.jsonl`, one JSON object on each line: whose history it is, then the
//! baseline, effects and trials in the order in which they were measured. A line is appended and
//! synced at once, so that a kill at any point loses the running trial at most; a last line that
//! is torn is dropped. `lock` is held while a run is at work. A history of another model, other data
//! or another configuration is never gone on with: it is refused, or kept beside under another name.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::choice::Configuration;
use crate::error::{Error, Result};
use crate::tuner::{Extent, Measured};

const FILE: &str = "history.jsonl";
const LOCK: &str = "lock";
const VERSION: u32 = 1;

/// What a history belongs to: [`fingerprint`](crate::choice::fingerprint)s of contents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Of the model.
    pub model: String,
    /// Of calibration and evaluation data.
    pub data: String,
    /// Of all settings on which measurements depend. Strategy, goal and stop rules may change.
    pub config: String,
}

/// What to do with a history that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Go on with it if it is of the same run; else keep it beside and start afresh.
    IfSame,
    /// Go on with it, or fail.
    Must,
    /// Keep it beside and start afresh.
    Never,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
enum Line {
    Header {
        version: u32,
        #[serde(flatten)]
        identity: Identity,
    },
    Baseline {
        measured: Measured,
        seconds: f64,
    },
    Damage {
        key: String,
        seconds: f64,
        damage: Vec<(String, f64)>,
        configuration: Configuration,
    },
    Trial {
        key: String,
        extent: Extent,
        measured: Measured,
        seconds: f64,
        configuration: Configuration,
    },
}

type Known<T> = HashMap<String, (Configuration, T, f64)>;

/// What was measured, and where the next line goes.
#[derive(Debug, Default)]
pub struct History {
    file: Option<(PathBuf, File)>,
    _lock: Option<File>, // let go by the system, even if we are killed
    baseline: Option<(Measured, f64)>,
    damage: Known<Vec<(String, f64)>>,
    subset: Known<Measured>,
    full: Known<Measured>,
    notes: Vec<String>,
}

impl History {
    /// One that forgets everything when it is dropped.
    pub fn in_memory() -> Self {
        Self::default()
    }

    /// The history of a workspace, which is created if it does not exist.
    ///
    /// # Errors
    /// If somebody else is at work there, or [`Resume::Must`] cannot be done.
    pub fn open(folder: impl AsRef<Path>, identity: &Identity, resume: Resume) -> Result<Self> {
        let folder = folder.as_ref();
        if resume != Resume::Must {
            std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
        }
        let path = folder.join(FILE);
        if resume == Resume::Must && !path.exists() {
            return Err(Error::NoHistory(folder.into()));
        }
        let lock = lock(folder)?;
        let mut history = Self { _lock: Some(lock), ..Self::default() };
        let there = match std::fs::read(&path) {
            Ok(bytes) => Some(bytes),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(Error::io("read", &path, e)),
        };
        let mut keep = 0;
        if let Some(bytes) = there {
            match history.take_over(&bytes, folder, identity, resume) {
                Ok(Some(length)) => {
                    keep = length;
                    if length < bytes.len() {
                        history.notes.push("the last line of the history was torn: dropped".into());
                    }
                }
                Ok(None) => {
                    let aside = set_aside(folder, &path)?;
                    let note = format!("the earlier history is kept as `{}`", aside.display());
                    history.notes.push(note);
                }
                Err(error) => return Err(error.in_file(&path)),
            }
        }
        if keep == 0 {
            let header = Line::Header { version: VERSION, identity: identity.clone() };
            frazil_tensor::file::write(&path, &text(&header)?)?;
        }
        let file = OpenOptions::new()
            .append(true)
            .open(&path)
            .map_err(|e| Error::io("write", &path, e))?;
        if keep > 0 {
            file.set_len(keep as u64).map_err(|e| Error::io("write", &path, e))?;
        }
        history.file = Some((path, file));
        Ok(history)
    }

    /// Reads what is there. How many bytes of it are good, or `None` to start afresh.
    fn take_over(
        &mut self,
        bytes: &[u8],
        folder: &Path,
        identity: &Identity,
        resume: Resume,
    ) -> Result<Option<usize>> {
        if resume == Resume::Never {
            return Ok(None);
        }
        let mut good = 0;
        for (index, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
            let last = good + line.len() == bytes.len();
            let parsed = match line.strip_suffix(b"\n") {
                Some(whole) => serde_json::from_slice::<Line>(whole).map_err(|e| e.to_string()),
                None => Err("it does not end".into()),
            };
            match parsed {
                Ok(line) => {
                    if index == 0
                        && let Some(what) = other(&line, identity)
                    {
                        if resume == Resume::Must {
                            return Err(Error::OtherRun { folder: folder.into(), what });
                        }
                        self.notes.push(format!("the history is of another {what}: a fresh start"));
                        return Ok(None);
                    }
                    self.remember(line);
                }
                Err(_) if last => break,
                Err(reason) => return Err(Error::History { line: index + 1, reason }),
            }
            good += line.len();
        }
        // Without a whole first line nothing is known, and nothing is lost.
        Ok((good > 0).then_some(good))
    }

    fn remember(&mut self, line: Line) {
        match line {
            Line::Header { .. } => {}
            Line::Baseline { measured, seconds } => self.baseline = Some((measured, seconds)),
            Line::Damage { key, seconds, damage, configuration } => {
                self.damage.insert(key, (configuration, damage, seconds));
            }
            Line::Trial { key, extent, measured, seconds, configuration } => {
                let known = match extent {
                    Extent::Subset => &mut self.subset,
                    Extent::Full => &mut self.full,
                };
                known.insert(key, (configuration, measured, seconds));
            }
        }
    }

    fn append(&mut self, line: Line) -> Result<()> {
        if let Some((path, file)) = &mut self.file {
            let text = text(&line)?;
            file.write_all(&text)
                .and_then(|()| file.sync_data())
                .map_err(|e| Error::io("write", path, e))?;
        }
        self.remember(line);
        Ok(())
    }

    /// What the user should hear: a fresh start, a torn line.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// How many measurements of configurations it has.
    pub fn len(&self) -> usize {
        self.subset.len() + self.full.len()
    }

    /// Has no configuration been measured?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn baseline(&self) -> Option<(Measured, f64)> {
        self.baseline
    }

    pub(crate) fn add_baseline(&mut self, measured: Measured, seconds: f64) -> Result<()> {
        self.append(Line::Baseline { measured, seconds })
    }

    pub(crate) fn measured(
        &self,
        key: &str,
        configuration: &Configuration,
        extent: Extent,
    ) -> Option<(Measured, f64)> {
        let known = match extent {
            Extent::Subset => &self.subset,
            Extent::Full => &self.full,
        };
        get(known, key, configuration)
    }

    pub(crate) fn add_trial(
        &mut self,
        key: &str,
        configuration: &Configuration,
        extent: Extent,
        measured: Measured,
        seconds: f64,
    ) -> Result<()> {
        let (key, configuration) = (key.to_owned(), configuration.clone());
        self.append(Line::Trial { key, extent, measured, seconds, configuration })
    }

    pub(crate) fn damage(
        &self,
        key: &str,
        configuration: &Configuration,
    ) -> Option<(Vec<(String, f64)>, f64)> {
        get(&self.damage, key, configuration)
    }

    pub(crate) fn add_damage(
        &mut self,
        key: &str,
        configuration: &Configuration,
        damage: &[(String, f64)],
        seconds: f64,
    ) -> Result<()> {
        let (key, configuration) = (key.to_owned(), configuration.clone());
        self.append(Line::Damage { key, seconds, damage: damage.to_vec(), configuration })
    }
}

/// By the key, and by the configuration itself: two may have the same key, however unlikely.
fn get<T: Clone>(known: &Known<T>, key: &str, of: &Configuration) -> Option<(T, f64)> {
    let (configuration, value, seconds) = known.get(key)?;
    (configuration == of).then(|| (value.clone(), *seconds))
}

/// What the first line says is different.
fn other(line: &Line, identity: &Identity) -> Option<&'static str> {
    let Line::Header { version, identity: found } = line else { return Some("kind") };
    match () {
        () if *version != VERSION => Some("version of frazil"),
        () if found.model != identity.model => Some("model"),
        () if found.data != identity.data => Some("data set"),
        () if found.config != identity.config => Some("configuration"),
        () => None,
    }
}

fn text(line: &Line) -> Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line)
        .map_err(|e| Error::Unwritable { what: "a line of the history", reason: e.to_string() })?;
    text.push(b'\n');
    Ok(text)
}

fn lock(folder: &Path) -> Result<File> {
    let path = folder.join(LOCK);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|e| Error::io("create", &path, e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Locked(folder.into())),
        Err(TryLockError::Error(e)) => Err(Error::io("lock", &path, e)),
    }
}

/// Gives an old history the first free name beside the new one.
fn set_aside(folder: &Path, path: &Path) -> Result<PathBuf> {
    let names = (1..10_000).map(|number| folder.join(format!("history-{number}.jsonl")));
    let mut free = names.filter(|name| !name.exists());
    let aside = free.next().unwrap_or_else(|| folder.join("history-old.jsonl"));
    std::fs::rename(path, &aside).map_err(|e| Error::io("rename", path, e))?;
    Ok(aside)
}
