//! `frazil predict embed MODEL [TEXT]...`

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use frazil::ops::predict::embed::{Counts, Embedder, Embedding, Options, Pool};
use frazil::tensor::Tensor;
use frazil::tensor::npy::{NpyRows, NpzWriter};
use serde_json::json;

use super::texts::Flags;
use crate::cli::Outcome;
use crate::commands::progress::Progress;

/// Make a vector of each text
///
/// MODEL is a checkpoint, graph, SavedModel, ONNX model or Hugging Face folder. A folder of
/// sentence-transformers (MiniLM, BGE, E5) says itself how the rows of a text become one vector; for
/// other models it is the mean of the last layer's rows, unless `--pooling` says otherwise. Each text
/// gives a line of JSON, or a row of an `.npy` or `.npz` file.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil predict embed all-MiniLM-L6-v2 'Frazil ice binds and packs.'
  frazil predict embed uncased_L-12_H-768_A-12 --file texts.txt \\
      --pooling cls -o vectors.npy
  frazil predict embed multilingual-e5-small --file rows.jsonl \\
      --text-column body -o vectors.npz")]
pub struct Args {
    /// The model
    model: PathBuf,
    #[command(flatten)]
    texts: Flags,
    /// Layers whose rows are pooled, -1 is the last one; of several, the vectors are joined
    #[arg(long, value_name = "N,…", value_delimiter = ',', allow_hyphen_values = true)]
    layers: Vec<i32>,
    /// How rows become a vector: cls, mean, max, or pooler for the model's own
    #[arg(long, value_name = "HOW")]
    pooling: Option<Pool>,
    /// Make vectors as long as 1
    #[arg(long)]
    normalize: bool,
    /// Leave vectors as long as they are, whatever the model's files say
    #[arg(long, conflicts_with = "normalize")]
    no_normalize: bool,
    /// Put the words before each text that the model's files have under this name
    #[arg(long, value_name = "NAME")]
    prompt: Option<String>,
    /// Write an `.npy` or `.npz` (array `embeddings`) or, under other names, lines of JSON
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long, requires = "out")]
    json: bool,
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let mut texts = args.texts.open()?;
    let options = Options {
        model: args.texts.model.options()?,
        layers: args.layers,
        pooling: args.pooling,
        normalize: (args.normalize || args.no_normalize).then_some(args.normalize),
        prompt: args.prompt,
    };
    let embedder = Embedder::open(&args.model, &options)?;
    let about = embedder.about();
    args.texts.notes(&about.notes);
    let progress = Progress::new("embedding", "texts", args.texts.model.quiet());
    let mut done = 0;
    let mut sink = Sink::new(args.out.as_deref())?;
    let counts = embedder.embed(&mut texts, |embedding| -> Result<()> {
        sink.add(&embedding, out)?;
        done += 1;
        progress.so_far(done);
        Ok(())
    })?;
    sink.finish()?;
    progress.finish();
    let mut ends = Vec::new();
    if counts.cut > 0 {
        let (cut, all, most) = (counts.cut, counts.texts, about.max_seq_length);
        ends.push(format!("{cut} of {all} texts were cut to {most} word pieces"));
    }
    args.texts.notes(&ends);
    args.texts.skipped(counts.skipped);
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &json!({"about": about, "counts": counts}))?;
        writeln!(out)?;
    } else if let Some(path) = &args.out {
        let Counts { texts, width, .. } = counts;
        writeln!(out, "{texts} vectors of {width} numbers are in `{}`", path.display())?;
    }
    Ok(Outcome::Done)
}

/// Where vectors go.
enum Sink {
    Stdout,
    Lines(frazil::tensor::file::AtomicFile),
    /// Begun with the first vector, which tells how long they are.
    Npy(PathBuf, Option<NpyRows>),
    Npz(PathBuf, Vec<f32>, Vec<i64>),
}

impl Sink {
    fn new(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else { return Ok(Self::Stdout) };
        let owned = path.to_path_buf();
        let ends = |end: &str| path.extension().is_some_and(|e| e.eq_ignore_ascii_case(end));
        Ok(if ends("npy") {
            Self::Npy(owned, None)
        } else if ends("npz") {
            Self::Npz(owned, Vec::new(), Vec::new())
        } else {
            Self::Lines(frazil::tensor::file::AtomicFile::create(path)?)
        })
    }

    fn add(&mut self, embedding: &Embedding, out: &mut dyn Write) -> Result<()> {
        let vector = &embedding.embedding;
        match self {
            Self::Stdout => {
                serde_json::to_writer(&mut *out, embedding)?;
                writeln!(out)?;
            }
            Self::Lines(file) => {
                serde_json::to_writer(&mut *file, embedding)?;
                writeln!(file)?;
            }
            Self::Npy(path, rows) => {
                let rows = match rows {
                    Some(rows) => rows,
                    None => rows.insert(NpyRows::create(path, vector.len())?),
                };
                rows.add(vector)?;
            }
            Self::Npz(_, vectors, lines) => {
                vectors.extend_from_slice(vector);
                lines.push(i64::try_from(embedding.line).unwrap_or(i64::MAX));
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        match self {
            Self::Stdout => {}
            Self::Lines(file) => file.commit()?,
            Self::Npy(_, Some(rows)) => rows.finish()?,
            Self::Npy(_, None) => bail!("no text has a vector"),
            Self::Npz(path, vectors, lines) => {
                let (n, width) = (lines.len(), vectors.len().checked_div(lines.len()).unwrap_or(0));
                let mut file = NpzWriter::create(path)?;
                file.add("embeddings", &Tensor::from_vec([n, width], vectors)?)?;
                file.add("lines", &Tensor::from_vec([n], lines)?)?;
                file.finish()?;
            }
        }
        Ok(())
    }
}
