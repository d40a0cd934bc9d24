//! Batches from files of samples: packs as they are stored, or sequences that are packed on the way.
//!
//! Samples are shuffled across all files, anew in each epoch and always the same for a seed.
//! Sequences are taken a window at a time and packed into lengths of one; packs of a window are
//! shuffled, too, since they come out sorted. What is padding alone is passed over as if it were not
//! there. [`Reader::position`] is all that it takes to go on somewhere else as if nothing had happened,
//! if [`Reader::identity`] is the same there. Left out: threads. A batch is made in a fraction of the time
//! that training on it takes.

use std::cell::OnceCell;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::permutation::Permutation;
use super::{Kind, Limits, PackedBatch, Sample, SampleFile, Shape, open_all};
use crate::packing::{self, Depth, Histogram, Packing};
use crate::python::random::{Random, mix};
use crate::{Error, Result};

/// How files are read.
#[derive(Clone, Debug)]
pub struct ReaderOptions {
    /// How large the samples of binaries are.
    pub shape: Shape,
    /// Packs of a batch. Of sequences that are not packed, each is a pack.
    pub packs: usize,
    /// The seed of the shuffle; without one, files and samples come in their order.
    pub shuffle: Option<u64>,
    /// Sequences of a pack, where sequences are packed on the way; 1: they are not.
    pub depth: Depth,
    /// Tokens of a pack, where sequences are packed on the way; else those of a padded sequence.
    pub max_length: Option<usize>,
    /// Sequences that are packed together, where they are packed on the way.
    pub window: usize,
    /// How many times each file holds the same text, masked differently, one after the other. An
    /// epoch reads one of them, the next epoch the next.
    pub duplication_factor: usize,
    /// Whether epochs follow each other without end; if not, the last batch may be smaller.
    pub repeat: bool,
    /// Which part of every batch this reader gives, of how many: `packs` packs for each of as many
    /// readers. All read the same packs in the same order.
    pub part: (usize, usize),
    /// What samples may not go beyond.
    pub limits: Limits,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self {
            shape: Shape::default(),
            packs: 1,
            shuffle: None,
            depth: Depth::Max,
            max_length: None,
            window: 4096,
            duplication_factor: 1,
            repeat: false,
            part: (0, 1),
            limits: Limits::default(),
        }
    }
}

/// Where a reader is: between two packs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Epochs that are done.
    pub epoch: u64,
    /// Samples of this one that are done; the first of the window, where sequences are packed.
    pub sample: u64,
    /// Packs of the window that are done.
    pub pack: u64,
}

/// Gives batches.
#[derive(Debug)]
pub struct Reader {
    files: Vec<SampleFile>,
    options: ReaderOptions,
    max_length: usize,
    position: Position,
    window: Option<Window>,
    identity: OnceCell<u64>,
}

/// Sequences that were packed together.
#[derive(Debug)]
struct Window {
    samples: Vec<Option<Sample>>,
    /// Which of them are in which pack.
    packs: Vec<Vec<u32>>,
    /// How many samples of the files it is made of, padding included.
    read: u64,
}

impl Reader {
    /// Opens files, all of one kind. Those without any record are left out.
    pub fn open(paths: &[impl AsRef<Path>], options: ReaderOptions) -> Result<Self> {
        Self::new(open_all(paths, options.shape)?, options)
    }

    /// Of files that are open.
    pub fn new(files: Vec<SampleFile>, options: ReaderOptions) -> Result<Self> {
        let first = files.first().ok_or(Error::NoFiles)?;
        for file in &files {
            let of = |file: &SampleFile| (file.kind().is_packed(), file.holds());
            if of(file) != of(first) {
                let said = |file: &SampleFile| format!("{} of {:?}", file.kind(), file.holds());
                let (path, expected, found) = (file.path().to_path_buf(), said(first), said(file));
                return Err(Error::OtherSamples { path, expected, found });
            }
        }
        if files.iter().all(SampleFile::is_padding_only) {
            return Err(Error::OnlyPadding.in_file(first.path()));
        }
        let (part, parts) = options.part;
        for (name, found, least) in [
            ("packs", options.packs, 1),
            ("window", options.window, 1),
            ("duplication_factor", options.duplication_factor, 1),
            ("parts", parts, part + 1),
        ] {
            if found < least {
                return Err(Error::FeatureLength { name, found, least, why: "" });
            }
        }
        let longest = files.iter().map(SampleFile::padded_len).max().unwrap_or(0);
        let max_length = options.max_length.unwrap_or(longest);
        let (position, window, identity) = (Position::default(), None, OnceCell::new());
        let reader = Self { files, options, max_length, position, window, identity };
        let mut epochs = 0..reader.options.duplication_factor as u64;
        match epochs.all(|epoch| reader.samples_in(epoch) > 0) {
            true => Ok(reader),
            false => {
                let samples = reader.files.iter().map(|file| file.len() as u64).sum();
                Err(Error::FewDuplicates { samples, factor: reader.options.duplication_factor })
            }
        }
    }

    /// What is to be learnt.
    pub fn kind(&self) -> Kind {
        self.files[0].holds()
    }

    /// Whether the files hold packs, not sequences.
    pub fn is_packed(&self) -> bool {
        self.files[0].kind().is_packed()
    }

    /// Makes sure that this is what is to be learnt.
    pub fn expect(&self, expected: Kind) -> Result<()> {
        match self.kind() {
            found if found == expected => Ok(()),
            found => {
                let path = self.files[0].path().to_path_buf();
                Err(Error::OtherKind { path, expected, found })
            }
        }
    }

    /// Tokens of a pack at most.
    pub fn max_length(&self) -> usize {
        self.max_length
    }

    /// Where the next batch begins.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Goes on elsewhere.
    pub fn seek(&mut self, position: Position) -> Result<()> {
        let (sample, count) = (position.sample, self.samples_in(position.epoch));
        if sample >= count {
            return Err(Error::NoSuchPlace { sample, count });
        }
        (self.position, self.window) = (position, None);
        let packs = match self.packs_on_the_way() {
            true => self.window()?.packs.len() as u64,
            false => 1,
        };
        // A window of padding alone has no pack, and is passed over from its begin.
        match position.pack < packs.max(1) {
            true => Ok(()),
            false => Err(Error::NoSuchPlace { sample: position.pack, count: packs }),
        }
    }

    /// A number for what is read, and in which order: a position means the same where it is the same.
    pub fn identity(&self) -> u64 {
        *self.identity.get_or_init(|| self.identify())
    }

    fn identify(&self) -> u64 {
        let ReaderOptions { shuffle, depth, window, duplication_factor, .. } = self.options;
        let shuffle = shuffle.map_or([0, 0], |seed| [1, seed]);
        let order = shuffle.into_iter().chain([duplication_factor as u64]);
        let packing = [self.max_length as u64, window as u64, depth.limit(self.max_length) as u64];
        let packing = packing.into_iter().filter(|_| self.packs_on_the_way());
        let files = self.files.iter().flat_map(SampleFile::marks);
        order.chain(packing).chain(files).fold(0, |sum, mark| mix(sum ^ mark))
    }

    /// Packs of a batch, those of all parts.
    pub fn packs(&self) -> usize {
        self.options.packs * self.options.part.1
    }

    /// Goes over so many packs of the beginning as if they had been read; gives the number of their
    /// sequences. Of files of sequences nothing is read for that, so padding alone counts, too.
    pub fn pass_over(&mut self, packs: u64) -> Result<u64> {
        if self.packs_on_the_way() || self.is_packed() {
            let mut sequences = 0;
            for _ in 0..packs {
                sequences += self.next_pack()?.map_or(0, |pack| pack.len() as u64);
            }
            return Ok(sequences);
        }
        let factor = self.options.duplication_factor as u64;
        let round: u64 = (0..factor).map(|epoch| self.samples_in(epoch)).sum();
        let (mut epoch, mut sample) = (packs / round * factor, packs % round);
        while sample >= self.samples_in(epoch) {
            sample -= self.samples_in(epoch);
            epoch += 1;
        }
        self.seek(Position { epoch, sample, pack: 0 })?;
        Ok(packs)
    }

    /// Samples (packs or sequences, as the files have them) of an epoch.
    pub fn samples_in(&self, epoch: u64) -> u64 {
        (0..self.files.len()).map(|file| self.span(file, epoch).1).sum()
    }

    /// The next batch; none at the end.
    pub fn next_batch(&mut self) -> Result<Option<PackedBatch>> {
        let mut batch = PackedBatch::new();
        let (part, parts) = self.options.part;
        let packs = self.options.packs;
        let mine = part * packs..(part + 1) * packs;
        let mut there = 0;
        for place in 0..packs * parts {
            match mine.contains(&place) {
                true => match self.next_pack()? {
                    Some(pack) => batch.push_pack(&pack),
                    None => break,
                },
                false if self.pass_pack()? => {}
                false => break,
            }
            there += 1;
        }
        Ok((there > 0).then_some(batch))
    }

    /// The samples of the next pack; none at the end.
    pub fn next_pack(&mut self) -> Result<Option<Vec<Sample>>> {
        self.take_pack(true)
    }

    /// Leaves a pack to another reader; false at the end.
    fn pass_pack(&mut self) -> Result<bool> {
        Ok(self.take_pack(false)?.is_some())
    }

    /// The next pack that is not padding alone: with its samples, if they are wanted.
    fn take_pack(&mut self, wanted: bool) -> Result<Option<Vec<Sample>>> {
        while !self.is_at_end() {
            let pack = self.pack_here(wanted)?;
            self.advance()?;
            if pack.is_some() {
                return Ok(pack);
            }
        }
        Ok(None)
    }

    /// The pack where the reader is; none if that is padding alone.
    fn pack_here(&mut self, wanted: bool) -> Result<Option<Vec<Sample>>> {
        if self.packs_on_the_way() {
            let pack = self.position.pack as usize;
            let window = self.window()?;
            let Some(pack) = window.packs.get(pack) else { return Ok(None) };
            let take = |sample: &u32| window.samples[*sample as usize].take();
            return Ok(Some(match wanted {
                true => pack.iter().filter_map(take).collect(),
                false => Vec::new(),
            }));
        }
        let (file, index) = self.place(self.position.sample);
        if !wanted {
            return Ok((!self.files[file].is_padding(index)?).then(Vec::new));
        }
        let pack = self.samples(file, index)?;
        Ok(pack.iter().any(|sample| !sample.is_empty()).then_some(pack))
    }

    /// What a file has there, if the model has room for it.
    fn samples(&self, file: usize, index: usize) -> Result<Vec<Sample>> {
        let file = &self.files[file];
        let samples = file.samples(index)?;
        let checked = samples.iter().try_for_each(|sample| self.options.limits.check(sample));
        checked.map_err(|error| file.in_record(index, error))?;
        Ok(samples)
    }

    /// Whether sequences are packed when they are read: how many packs that gives is not known before.
    pub fn packs_on_the_way(&self) -> bool {
        !self.is_packed() && self.options.depth != Depth::AtMost(1)
    }

    fn is_at_end(&self) -> bool {
        !self.options.repeat && self.position.epoch > 0
    }

    /// Goes to the next pack, window or epoch.
    fn advance(&mut self) -> Result<()> {
        if self.packs_on_the_way() {
            let packs = self.window()?.packs.len() as u64;
            self.position.pack += 1;
            if self.position.pack < packs {
                return Ok(());
            }
            self.position.pack = 0;
            self.position.sample += self.window()?.read;
            self.window = None;
        } else {
            self.position.sample += 1;
        }
        if self.position.sample >= self.samples_in(self.position.epoch) {
            (self.position.epoch, self.position.sample) = (self.position.epoch + 1, 0);
        }
        Ok(())
    }

    /// First sample and number of samples of a file that an epoch reads.
    fn span(&self, file: usize, epoch: u64) -> (u64, u64) {
        let factor = self.options.duplication_factor as u64;
        let (count, part) = (self.files[file].len() as u64, epoch % factor);
        let [begin, end] = [part, part + 1].map(|part| part * count / factor);
        (begin, end - begin)
    }

    /// The seed of an epoch.
    fn seed(&self) -> Option<u64> {
        self.options.shuffle.map(|seed| mix(seed ^ mix(self.position.epoch)))
    }

    /// The file that has what comes in this place of the epoch, and where in it.
    fn place(&self, place: u64) -> (usize, usize) {
        let epoch = self.position.epoch;
        let mut place = match self.seed() {
            Some(seed) => Permutation::new(self.samples_in(epoch), seed).of(place),
            None => place,
        };
        for file in 0..self.files.len() {
            let (begin, count) = self.span(file, epoch);
            match place < count {
                true => return (file, (begin + place) as usize),
                false => place -= count,
            }
        }
        unreachable!("no place is beyond the samples of its epoch")
    }

    /// The window that we are in.
    fn window(&mut self) -> Result<&mut Window> {
        let window = match self.window.take() {
            Some(window) => window,
            None => self.pack_window()?,
        };
        Ok(self.window.insert(window))
    }

    fn pack_window(&self) -> Result<Window> {
        let count = self.samples_in(self.position.epoch);
        let end = count.min(self.position.sample + self.options.window as u64);
        let mut samples = Vec::new();
        for place in self.position.sample..end {
            let (file, index) = self.place(place);
            samples.extend(self.samples(file, index)?);
        }
        samples.retain(|sample| !sample.is_empty());
        let lengths: Vec<u32> = samples.iter().map(|sample| sample.len() as u32).collect();
        let histogram = Histogram::of(self.max_length, lengths.iter().map(|l| *l as usize))?;
        let options = packing::Options { depth: self.options.depth, ..Default::default() };
        let packing = Packing::find(&histogram, &options)?;
        let seed = mix(self.seed().unwrap_or(0) ^ mix(self.position.sample));
        let assignment = packing.assign(&lengths, seed)?;
        let mut packs: Vec<Vec<u32>> = assignment.packs().map(<[u32]>::to_vec).collect();
        Random::new(seed).shuffle(&mut packs);
        let samples = samples.into_iter().map(Some).collect();
        Ok(Window { samples, packs, read: end - self.position.sample })
    }
}

impl Iterator for Reader {
    type Item = Result<PackedBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

#[cfg(test)]
mod tests;
