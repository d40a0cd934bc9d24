//! Packs to files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use frazil_bert::packing::Packing;
use frazil_bert::python::random::Random;
use frazil_bert::samples::packed::Places;
use frazil_bert::samples::store::Samples;
use frazil_bert::samples::writer::{self, SampleWriter};
use frazil_bert::samples::{Kind, STRATEGY, Sample, Shape, UNFINISHED};
use frazil_tensor::file::Replacement;
use serde::Serialize;

use super::input::Input;
use super::report::OutputFile;
use super::{Event, Options};
use crate::ops::make_folder;
use crate::source::{self, files};
use crate::{Error, Result};

/// Packs of one of MLPerf's files at most.
const PART: usize = 50_000;

/// What packs are written as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// One file of packed records, in a shuffled order.
    #[default]
    Tfrecord,
    /// MLPerf's binaries: a folder with files for each combination of lengths.
    Mlperf,
    /// The same in PopART's later form.
    Popart,
}

/// What goes where.
pub(super) struct Plan {
    pub shape: Shape,
    /// Packs that were divided.
    pub split: u64,
    format: writer::Format,
    /// Which samples are in which pack.
    packs: Vec<Vec<u32>>,
    /// The folder that files go to, in the place of those of an earlier packing; none if there is one
    /// file only.
    folder: Option<PathBuf>,
    /// Files, and their packs.
    files: Vec<(PathBuf, Vec<u32>)>,
}

impl Plan {
    pub(super) fn new(
        options: &Options,
        input: &Input,
        packing: &Packing,
        output: &Path,
        on: &mut dyn FnMut(Event),
    ) -> Result<Self> {
        let Some(samples) = &input.samples else { return Err(nothing()) };
        if samples.is_empty() {
            return Err(nothing());
        }
        let is_binary = options.format != Format::Tfrecord;
        if is_binary && input.kind != Some(Kind::Pretraining) {
            return Err(Error::Usage {
                what: "MLPerf's binaries hold samples of pre-training only".into(),
                hint: "`--format tfrecord` holds every kind".into(),
            });
        }
        if options.check && options.format == Format::Popart {
            return Err(Error::Usage {
                what:
                    "PopART's later form does not say where a text began, so it cannot be checked"
                        .into(),
                hint: "`--format mlperf` or `--format tfrecord` can".into(),
            });
        }
        let assignment = packing.assign(samples.lengths(), options.seed)?;
        let mut packs: Vec<Vec<u32>> = assignment.packs().map(<[u32]>::to_vec).collect();
        let deepest = packs.iter().map(Vec::len).max().unwrap_or(1);
        let limit = options.way.depth.limit(packing.max_length);
        // As many places as were asked for; where every number was allowed, as many as are used.
        let sequences = if limit == packing.max_length { deepest } else { limit };
        let (max_length, max_predictions) = (packing.max_length, input.max_predictions);
        let masked: Vec<u32> = samples.iter().map(|sample| sample.masked().len() as u32).collect();
        let of_pack =
            |pack: &[u32]| pack.iter().map(|s| masked[*s as usize] as usize).sum::<usize>();
        let needed = packs.iter().map(|pack| of_pack(pack)).max().unwrap_or(0);
        let mut shape = Shape { max_length, max_predictions, sequences };
        // PopART's form has a place fewer.
        let without = usize::from(options.format == Format::Popart);
        if is_binary && options.max_predictions.is_none() {
            // Packs may be longer than the records, and then have more masked pieces than the records' places.
            shape.max_predictions =
                max_predictions.max((needed + without).saturating_sub(sequences));
        }
        shape.check()?;
        let mut places = shape.places();
        let mut split = 0;
        if is_binary {
            split = divide(&mut packs, places.masked.saturating_sub(without), of_pack);
        } else {
            if let Some(asked) = options.max_predictions
                && needed > places.masked
            {
                on(Event::Note(format!(
                    "`max_predictions` is {asked}, but packs have up to {needed} masked pieces: records have \
                     places for all of them"
                )));
            }
            places.masked = places.masked.max(needed);
        }
        let format = match options.format {
            Format::Tfrecord => writer::Format::PackedRecords(places),
            Format::Mlperf => writer::Format::PackedBinary(shape),
            Format::Popart => writer::Format::Popart(shape),
        };
        let has_masked = input.kind == Some(Kind::Pretraining);
        on(Event::Note(sizes(options.format, places, shape, has_masked)));
        let files = match is_binary {
            true => by_strategy(output, &packs, samples.lengths()),
            false => {
                let mut order: Vec<u32> = (0..packs.len() as u32).collect();
                Random::new(options.seed).shuffle(&mut order);
                vec![(output.to_path_buf(), order)]
            }
        };
        let folder = is_binary.then(|| output.to_path_buf());
        Ok(Self { shape, split, format, packs, folder, files })
    }

    /// What is written, if it is not what was found.
    pub(super) fn divided(&self, samples: &Samples, found: &Packing) -> Option<Packing> {
        let lengths =
            |pack: &Vec<u32>| pack.iter().map(|s| samples.lengths()[*s as usize]).collect();
        (self.split > 0).then(|| Packing {
            found_by: found.found_by,
            ..Packing::of_packs(found.max_length, self.packs.iter().map(lengths))
        })
    }

    /// The number of packs.
    pub(super) fn packs(&self) -> usize {
        self.packs.len()
    }

    /// Writes them. Files of a folder appear when all are complete.
    pub(super) fn write(
        &self,
        samples: &Samples,
        on: &mut dyn FnMut(Event),
    ) -> Result<Vec<OutputFile>> {
        let total = self.packs.len() as u64;
        let mut done = 0;
        let mut written = Vec::with_capacity(self.files.len());
        let replacement = match &self.folder {
            Some(folder) => {
                make_folder(folder)?;
                Some(Replacement::create(folder)?)
            }
            None => None,
        };
        for (path, packs) in &self.files {
            let place = match (&replacement, path.file_name()) {
                (Some(replacement), Some(name)) => replacement.path().join(name),
                _ => path.clone(),
            };
            if let Some(folder) = place.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                make_folder(folder)?;
            }
            let mut writer = SampleWriter::create(place, self.format)?;
            for pack in packs {
                let pack: Vec<Sample> = self.packs[*pack as usize]
                    .iter()
                    .map(|sample| samples.get(*sample as usize))
                    .collect();
                writer.add(&pack)?;
                done += 1;
                on(Event::Writing(done, total));
            }
            written.push(OutputFile { path: path.clone(), packs: writer.finish()? });
        }
        if let Some(replacement) = replacement {
            replacement.commit(is_strategy, UNFINISHED)?;
        }
        Ok(written)
    }

    /// The files that a reader of what was written reads: of a folder all that begin as ours do.
    pub(super) fn to_read(&self) -> Result<Vec<PathBuf>> {
        match &self.folder {
            Some(folder) => {
                let folder = glob::Pattern::escape(&folder.to_string_lossy());
                files(&[Path::new(&folder).join("strategy*").display().to_string()])
            }
            None => Ok(self.files.iter().map(|(path, _)| path.clone()).collect()),
        }
    }
}

/// Makes sure, before anything is read, that all can be written, and nothing over what is read.
pub(super) fn check(options: &Options) -> Result<()> {
    let written: Vec<PathBuf> =
        [&options.output, &options.svg].into_iter().flatten().cloned().collect();
    if written.is_empty() {
        return Ok(());
    }
    let read = options.source.files()?;
    source::keep_apart(&read, &written)?;
    let Some(output) = &options.output else { return Ok(()) };
    if options.check && output.exists() && !output.is_file() && !output.is_dir() {
        return Err(Error::Usage {
            what: format!("`{}` is no file that `--check` could read again", output.display()),
            hint: "check packs in a file first".into(),
        });
    }
    if options.format == Format::Tfrecord {
        return match output.is_dir() {
            true => Err(Error::Usage {
                what: format!("`{}` is a folder, where a file is to be written", output.display()),
                hint: "name a file; `--format mlperf` fills a folder".into(),
            }),
            false => Ok(()),
        };
    }
    if output.exists() && !output.is_dir() {
        return Err(Error::Usage {
            what: format!("`{}` is a file, where a folder is to be filled", output.display()),
            hint: "name a folder; `--format tfrecord` writes a file".into(),
        });
    }
    let folder = source::place(output);
    let replaced = read.iter().find(|path| {
        let place = source::place(path);
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        place.parent() == Some(&folder) && is_strategy(&name)
    });
    match replaced {
        Some(path) => Err(Error::Usage {
            what: format!("`{}` is packed, and would be replaced", path.display()),
            hint: "name another folder to write to".into(),
        }),
        None => Ok(()),
    }
}

/// Whether a file is one of MLPerf's by its name.
fn is_strategy(name: &str) -> bool {
    let numbers = |text: &str| text.split('_').all(|word| word.parse::<u32>().is_ok());
    let parts = name.strip_prefix(STRATEGY).and_then(|name| name.split_once("_part_"));
    parts.is_some_and(|(lengths, part)| numbers(lengths) && numbers(part))
}

fn nothing() -> Error {
    Error::Usage {
        what: "there is no sequence to pack".into(),
        hint: "the files hold nothing but padding".into(),
    }
}

/// What a reader of the files must know, since binaries do not say it.
fn sizes(format: Format, places: Places, shape: Shape, has_masked: bool) -> String {
    let Places { tokens, masked, sequences } = places;
    match format {
        Format::Tfrecord if !has_masked => {
            format!("each record has places for {tokens} tokens and {sequences} sequences")
        }
        Format::Tfrecord => format!(
            "each record has places for {tokens} tokens, {masked} masked pieces and {sequences} sequences"
        ),
        Format::Mlperf => format!(
            "each pack is {} bytes; who reads it has to know {tokens} tokens, {} masked pieces of a \
             sequence and {sequences} sequences: `frazil pack --max-seq-length {tokens} \
             --max-predictions {1} --depth {sequences}`, `frazil pretrain --sequence-length {tokens} \
             --mask-tokens {1} --max-sequences-per-pack {sequences}`",
            shape.bytes_of_pack(),
            shape.max_predictions
        ),
        Format::Popart => format!(
            "each pack has {tokens} tokens, {} places for masked pieces and {sequences} sequences",
            masked.saturating_sub(1)
        ),
    }
}

/// Divides packs whose masked pieces are more than there are places for: the last sequence gets a
/// pack of its own, until the rest fits. MLPerf's own packer stops at such a pack, and PopART's
/// drops it.
fn divide(packs: &mut Vec<Vec<u32>>, budget: usize, masked: impl Fn(&[u32]) -> usize) -> u64 {
    let mut divided = 0;
    let mut at = 0;
    while at < packs.len() {
        if packs[at].len() > 1 && masked(&packs[at]) > budget {
            let alone = packs[at].len() - 1;
            let last = packs[at].split_off(alone);
            packs.push(last);
            divided += 1;
        } else {
            at += 1;
        }
    }
    divided
}

/// MLPerf's files, by the lengths of the sequences: `strategy_{shortest}_…_{longest}_part_{n}`.
fn by_strategy(folder: &Path, packs: &[Vec<u32>], lengths: &[u32]) -> Vec<(PathBuf, Vec<u32>)> {
    let mut groups: BTreeMap<Vec<u32>, Vec<u32>> = BTreeMap::new();
    for (pack, index) in packs.iter().zip(0..) {
        let mut strategy: Vec<u32> = pack.iter().map(|sample| lengths[*sample as usize]).collect();
        strategy.sort_unstable();
        groups.entry(strategy).or_default().push(index);
    }
    let (mut files, mut cut) = (Vec::new(), 0);
    for (strategy, packs) in groups {
        let name = name_of(&strategy, &mut cut);
        let named = |(part, packs): (usize, &[u32])| {
            (folder.join(format!("{STRATEGY}{name}_part_{part}")), packs.to_vec())
        };
        files.extend(packs.chunks(PART).enumerate().map(named));
    }
    files
}

/// The lengths. Of very many, since systems have names of 255 bytes: as many as there is room for, 0, which
/// is no length, and how many names were cut before.
fn name_of(strategy: &[u32], cut: &mut usize) -> String {
    const MOST: usize = 180;
    let lengths: Vec<String> = strategy.iter().map(u32::to_string).collect();
    let mut name = lengths.join("_");
    if name.len() > MOST {
        name.truncate(name[..MOST].rfind('_').unwrap_or(MOST));
        name = format!("{name}_0_{cut}");
        *cut += 1;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_with_too_many_masked_pieces_are_divided() {
        let masked = [3, 2, 2, 9, 1];
        let of = |pack: &[u32]| pack.iter().map(|s| masked[*s as usize]).sum();
        let mut packs = vec![vec![0, 1, 2], vec![3], vec![4, 0, 1]];
        assert_eq!(divide(&mut packs, 6, of), 1);
        assert_eq!(packs, [vec![0, 1], vec![3], vec![4, 0, 1], vec![2]]);
        assert_eq!(divide(&mut packs, 4, of), 2);
        assert_eq!(packs, [vec![0], vec![3], vec![4, 0], vec![2], vec![1], vec![1]]);
    }

    #[test]
    fn files_are_known_by_their_names() {
        for name in ["strategy_2_5_part_0", "strategy_9_part_12"] {
            assert!(is_strategy(name), "{name}");
        }
        let others = ["strategy_unfinished", "strategy_a_part_0", "strategy_9_part_0.gz"];
        for name in others.into_iter().chain(["my_strategy_9_part_0", "strategy__part_"]) {
            assert!(!is_strategy(name), "{name}");
        }
    }

    #[test]
    fn files_are_named_by_lengths_and_part() {
        let lengths = [5, 2, 9, 5, 2];
        let packs = [vec![2], vec![0, 1], vec![3, 4]];
        let files = by_strategy(Path::new("d"), &packs, &lengths);
        let names: Vec<String> = files.iter().map(|(path, _)| path.display().to_string()).collect();
        assert_eq!(names, ["d/strategy_2_5_part_0", "d/strategy_9_part_0"]);
        assert_eq!(files[0].1, [1, 2]);
        // Two that begin alike, and have no room.
        let deep = [vec![1; 120], [vec![1; 120], vec![0]].concat(), vec![2]];
        let files = by_strategy(Path::new("d"), &deep, &lengths);
        let names: Vec<&str> =
            files.iter().map(|(path, _)| path.file_name().unwrap().to_str().unwrap()).collect();
        assert!(names[0].starts_with("strategy_2_2_2_") && names[0].ends_with("_2_0_0_part_0"));
        assert!(names[1].ends_with("_2_0_1_part_0") && names[2] == "strategy_9_part_0");
        assert!(names.iter().all(|name| name.len() < 220 && is_strategy(name)), "{names:?}");
        let many = vec![vec![0]; PART + 1];
        let files = by_strategy(Path::new("d"), &many, &lengths);
        assert_eq!(files.iter().map(|(_, packs)| packs.len()).collect::<Vec<_>>(), [PART, 1]);
        assert!(files[1].0.ends_with("strategy_5_part_1"));
    }
}
