//! Words of 32 bits, appended one after the other and then read anywhere: in memory while they are
//! few, in a temporary file that is mapped when they are many.
//!
//! Shuffling a corpus needs all of it at hand, and a corpus may be larger than memory; behind a
//! map, the system keeps those pages that are looked at. Left out: what the words mean.

use std::io::Write;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use frazil_tensor::file::{self, Scratch};

use crate::{Error, Result};

/// More than that goes to a file: 256 MB.
const IN_MEMORY: usize = 64 << 20;

/// Takes words.
pub(crate) struct Spool {
    memory: Vec<u32>,
    most: usize,
    folder: PathBuf,
    file: Option<Scratch>,
    length: u64,
}

impl Spool {
    /// Many words will go to a temporary file in this folder.
    pub(crate) fn new(folder: impl Into<PathBuf>) -> Self {
        Self::with_limit(folder, IN_MEMORY)
    }

    fn with_limit(folder: impl Into<PathBuf>, most: usize) -> Self {
        Self { memory: Vec::new(), most, folder: folder.into(), file: None, length: 0 }
    }

    /// How many words there are.
    pub(crate) fn len(&self) -> u64 {
        self.length
    }

    /// Adds words. In memory, too, that ends after an interruption: whoever fills a spool takes long.
    pub(crate) fn push(&mut self, words: &[u32]) -> Result<()> {
        file::go_on()?;
        self.length += words.len() as u64;
        if self.file.is_none() && self.memory.len() + words.len() > self.most {
            let mut file = Scratch::create_in(&self.folder)?;
            write(&mut file, &self.memory, &self.folder)?;
            self.memory = Vec::new();
            self.file = Some(file);
        }
        match &mut self.file {
            Some(file) => write(file, words, &self.folder)?,
            None => self.memory.extend_from_slice(words),
        }
        Ok(())
    }

    /// All of them.
    pub(crate) fn finish(self) -> Result<Words> {
        Ok(match self.file {
            Some(file) => Words::Mapped(file.map()?),
            None => Words::Memory(self.memory),
        })
    }
}

fn write(file: &mut Scratch, words: &[u32], folder: &Path) -> Result<()> {
    file.write_all(bytemuck::cast_slice(words)).map_err(|source| {
        let (action, path) = ("write a temporary file in", folder.to_path_buf());
        Error::Tensor(frazil_tensor::Error::Io { action, path, source })
    })
}

/// The words of a [`Spool`].
#[derive(Debug)]
pub(crate) enum Words {
    Memory(Vec<u32>),
    /// Whole words, at the beginning of a page.
    Mapped(Bytes),
}

impl Deref for Words {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        match self {
            Self::Memory(words) => words,
            Self::Mapped(bytes) => bytemuck::cast_slice(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_words_and_many_read_the_same() {
        let folder = tempfile::tempdir().unwrap();
        for most in [0, 5, 100] {
            let mut spool = Spool::with_limit(folder.path(), most);
            for i in 0..10_u32 {
                spool.push(&vec![i; i as usize]).unwrap();
            }
            assert_eq!((spool.len(), spool.file.is_some()), (45, most < 45));
            let words = spool.finish().unwrap();
            assert_eq!(words.len(), 45);
            assert_eq!(words[36..], [9; 9]);
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        assert!(Spool::with_limit("/nowhere", 0).push(&[1]).is_err());
    }
}
