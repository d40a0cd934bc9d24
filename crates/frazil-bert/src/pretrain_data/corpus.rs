//! Text files to documents of sentences of word pieces.
//!
//! Plain text is read as the original reads it: a sentence on each line, an empty line between
//! documents, every carriage return dropped, and no boundary between two files. What WikiExtractor
//! writes is known by its `<doc …>` lines, or by its lines of JSON: each block or line is a document,
//! its title is left out, its paragraphs are cut into sentences. Pieces are kept in a spool, so that
//! a corpus may be larger than memory; lines are cut into pieces on several threads. Left out: finding
//! the files.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use frazil_tensor::file;
use serde::{Deserialize, Serialize};

use super::sentences::sentences;
use crate::rows::RowProblem;
use crate::spool::{Spool, Words};
use crate::tokenizer::{Tokenizer, split_whitespace};
use crate::{Error, Result};

/// Bytes of text that are cut into pieces at a time.
const BATCH: usize = 4 << 20;
/// Lines longer than that are refused: whatever it is, it is no text with a sentence on each line.
const LONGEST_LINE: u64 = 64 << 20;

/// How files are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// By the first line that is not empty: [`Wiki`](Self::Wiki) if it begins a `<doc …>`,
    /// [`Json`](Self::Json) if it is an object with a `text`, else [`Plain`](Self::Plain).
    #[default]
    Auto,
    /// A sentence on each line, an empty line between documents.
    Plain,
    /// What WikiExtractor writes.
    Wiki,
    /// What it writes with `--json`: a document on each line.
    Json,
}

/// What editors of some systems put in front of a text in UTF-8.
const MARK: char = '\u{feff}';

impl Format {
    /// What a file is, by its beginning.
    fn of(self, beginning: &[u8]) -> Self {
        if self != Self::Auto {
            return self;
        }
        let text = beginning.strip_prefix(b"\xef\xbb\xbf").unwrap_or(beginning).trim_ascii_start();
        let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let has = |words: &[u8]| line.windows(words.len()).any(|window| window == words);
        match line {
            _ if line.starts_with(b"<doc ") => Self::Wiki,
            _ if line.starts_with(b"{\"") && has(b"\"text\":") => Self::Json,
            _ => Self::Plain,
        }
    }
}

/// How a corpus is read.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// What the files are.
    pub format: Format,
    /// Threads that cut text into pieces; 0: as many as there are CPUs.
    pub threads: usize,
    /// Where a corpus that is larger than memory goes meanwhile.
    pub scratch: PathBuf,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self { format: Format::Auto, threads: 0, scratch: std::env::temp_dir() }
    }
}

/// Documents of sentences of word pieces.
#[derive(Debug)]
pub struct Corpus {
    /// Of each document: the number of its sentences, where each ends, the pieces.
    words: Words,
    /// Where each document begins in `words`, and where the last one ends.
    starts: Vec<u64>,
    /// What was read.
    pub report: CorpusReport,
}

/// What was read.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CorpusReport {
    /// Files as they were read.
    pub files: Vec<FileReport>,
    /// Documents that have a sentence.
    pub documents: u64,
    /// Sentences that have a piece.
    pub sentences: u64,
    /// Word pieces.
    pub pieces: u64,
    /// Bytes of text.
    pub bytes: u64,
}

/// One file.
#[derive(Clone, Debug, Serialize)]
pub struct FileReport {
    /// Where it is.
    pub path: PathBuf,
    /// What it was read as.
    pub format: Format,
}

/// One document.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a> {
    ends: &'a [u32],
    pieces: &'a [u32],
}

impl<'a> Document<'a> {
    /// The number of its sentences; at least one.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Never: a document without sentences is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The pieces of some sentences.
    pub fn sentences(&self, which: std::ops::Range<usize>) -> &'a [u32] {
        let begin = |sentence: usize| match sentence {
            0 => 0,
            sentence => self.ends[sentence - 1] as usize,
        };
        &self.pieces[begin(which.start)..begin(which.end)]
    }

    /// The pieces of a sentence.
    pub fn sentence(&self, which: usize) -> &'a [u32] {
        self.sentences(which..which + 1)
    }
}

impl Corpus {
    /// Reads files; `progress` is told how many bytes of how many were read.
    pub fn read(
        files: &[PathBuf],
        tokenizer: &Tokenizer,
        options: &ReadOptions,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Self> {
        let sizes: io::Result<Vec<u64>> =
            files.iter().map(|file| Ok(std::fs::metadata(file)?.len())).collect();
        let total = sizes.map_or(0, |sizes| sizes.iter().sum());
        let mut builder = Builder::new(tokenizer, options);
        for path in files {
            let file = File::open(path).map_err(|source| unreadable("open", path, source))?;
            let file = BufReader::with_capacity(1 << 20, file);
            builder.read(file, path, |done| progress(done, total))?;
        }
        builder.finish()
    }

    /// Reads one text that is in memory.
    pub fn of_text(text: &[u8], tokenizer: &Tokenizer, options: &ReadOptions) -> Result<Self> {
        let mut builder = Builder::new(tokenizer, options);
        builder.read(text, Path::new("text"), |_| {})?;
        builder.finish()
    }

    /// The number of documents.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A document.
    pub fn document(&self, index: usize) -> Document<'_> {
        let [begin, end] = [index, index + 1].map(|i| self.starts[i] as usize);
        let words = &self.words[begin..end];
        let (ends, pieces) = words[1..].split_at(words[0] as usize);
        Document { ends, pieces }
    }
}

fn unreadable(action: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Tensor(frazil_tensor::Error::Io { action, path: path.to_path_buf(), source })
}

/// Collects lines, cuts them, and puts documents away.
struct Builder<'a> {
    tokenizer: &'a Tokenizer,
    options: &'a ReadOptions,
    /// Lines that are to be cut, and how many bytes they have.
    lines: Vec<String>,
    size: usize,
    /// A document ends before each of these lines.
    breaks: Vec<usize>,
    /// The document that is being read: ends of sentences, and pieces.
    ends: Vec<u32>,
    pieces: Vec<u32>,
    spool: Spool,
    starts: Vec<u64>,
    report: CorpusReport,
}

impl<'a> Builder<'a> {
    fn new(tokenizer: &'a Tokenizer, options: &'a ReadOptions) -> Self {
        Self {
            tokenizer,
            options,
            lines: Vec::new(),
            size: 0,
            breaks: Vec::new(),
            ends: Vec::new(),
            pieces: Vec::new(),
            spool: Spool::new(&options.scratch),
            starts: vec![0],
            report: CorpusReport::default(),
        }
    }

    fn read(
        &mut self,
        mut input: impl BufRead,
        path: &Path,
        mut progress: impl FnMut(u64),
    ) -> Result<()> {
        let failed = |source| unreadable("read", path, source);
        let format = self.options.format.of(input.fill_buf().map_err(failed)?);
        self.report.files.push(FileReport { path: path.to_path_buf(), format });
        let mut wiki = Wiki::default();
        let mut bytes = Vec::new();
        for number in 1.. {
            bytes.clear();
            let read = input.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes);
            let read = read.map_err(failed)? as u64;
            if read == 0 {
                break;
            }
            self.report.bytes += read;
            if read == LONGEST_LINE {
                let most = LONGEST_LINE as usize;
                let problem = RowProblem::LongLine { most };
                return Err(Error::from(problem.on_line(number)).in_file(path));
            }
            // TensorFlow's reader of lines drops them wherever they stand.
            bytes.retain(|byte| *byte != b'\r');
            let line = std::str::from_utf8(&bytes).map_err(|error| {
                let problem = RowProblem::Utf8 { at: error.valid_up_to() + 1 };
                Error::from(problem.on_line(number)).in_file(path)
            })?;
            let unmarked = if number == 1 { line.strip_prefix(MARK).unwrap_or(line) } else { line };
            match format {
                Format::Wiki => self.wiki_line(&mut wiki, unmarked),
                Format::Json => self
                    .json_line(unmarked)
                    .map_err(|problem| Error::from(problem.on_line(number)).in_file(path))?,
                _ => self.plain_line(line),
            }
            if self.size >= BATCH {
                self.cut()?;
                progress(self.report.bytes);
            }
        }
        if format != Format::Plain {
            self.end_document();
        }
        Ok(())
    }

    fn plain_line(&mut self, line: &str) {
        if split_whitespace(line).next().is_none() {
            self.end_document();
        } else {
            self.add(line);
        }
    }

    fn wiki_line(&mut self, wiki: &mut Wiki, line: &str) {
        let line = line.trim();
        if line.starts_with("<doc ") && line.ends_with('>') {
            self.end_document();
            *wiki = Wiki { title: title(line) };
        } else if line == "</doc>" {
            self.end_document();
        } else {
            self.paragraph(wiki, line);
        }
    }

    fn json_line(&mut self, line: &str) -> Result<(), RowProblem> {
        if line.trim().is_empty() {
            return Ok(());
        }
        let article: Article = serde_json::from_str(line)
            .map_err(|error| RowProblem::Json(format!("{error}, which is of this line")))?;
        self.end_document();
        let mut wiki = Wiki { title: article.title };
        article.text.lines().for_each(|line| self.paragraph(&mut wiki, line.trim()));
        Ok(())
    }

    fn paragraph(&mut self, wiki: &mut Wiki, line: &str) {
        if !line.is_empty() && wiki.title.take().is_none_or(|title| title != line) {
            sentences(line).for_each(|sentence| self.add(sentence));
        }
    }

    fn add(&mut self, line: &str) {
        self.size += line.len();
        self.lines.push(line.to_owned());
    }

    fn end_document(&mut self) {
        if self.breaks.last() != Some(&self.lines.len()) {
            self.breaks.push(self.lines.len());
        }
    }

    /// Cuts the lines that were collected, and puts away the documents that are complete.
    fn cut(&mut self) -> Result<()> {
        file::go_on()?;
        let lines = std::mem::take(&mut self.lines);
        let mut breaks = std::mem::take(&mut self.breaks).into_iter().peekable();
        self.size = 0;
        let encodings = self.tokenizer.encode_batch(&lines, super::few(self.options.threads));
        for (index, encoding) in encodings.into_iter().enumerate() {
            if breaks.next_if_eq(&index).is_some() {
                self.put_away()?;
            }
            if encoding.is_empty() {
                continue;
            }
            self.pieces.extend(encoding.ids);
            let end = u32::try_from(self.pieces.len()).map_err(|_| Error::DocumentTooLong)?;
            self.ends.push(end);
        }
        if breaks.next().is_some() {
            self.put_away()?;
        }
        Ok(())
    }

    fn put_away(&mut self) -> Result<()> {
        if self.ends.is_empty() {
            return Ok(());
        }
        let count = u32::try_from(self.ends.len()).map_err(|_| Error::DocumentTooLong)?;
        self.spool.push(&[count])?;
        self.spool.push(&self.ends)?;
        self.spool.push(&self.pieces)?;
        self.starts.push(self.spool.len());
        self.report.documents += 1;
        self.report.sentences += u64::from(count);
        self.report.pieces += self.pieces.len() as u64;
        self.ends.clear();
        self.pieces.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<Corpus> {
        self.cut()?;
        self.put_away()?;
        if self.starts.len() == 1 {
            let files = self.report.files.into_iter().map(|file| file.path).collect();
            return Err(Error::EmptyCorpus { files });
        }
        Ok(Corpus { words: self.spool.finish()?, starts: self.starts, report: self.report })
    }
}

/// Where we are in what WikiExtractor wrote.
#[derive(Default)]
struct Wiki {
    /// The title of the document that has just begun: its first line repeats it.
    title: Option<String>,
}

/// A line of JSON.
#[derive(Deserialize)]
struct Article {
    title: Option<String>,
    text: String,
}

/// What `title="…"` says; newer versions of the tool write it as HTML does.
fn title(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("title=\"")?;
    let (title, _) = rest.rsplit_once('"')?;
    let plain = |title: String, (html, plain): (&str, &str)| title.replace(html, plain);
    let names = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&amp;", "&")];
    Some(names.into_iter().fold(title.to_owned(), plain))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::tokenizer::{Casing, Vocabulary};

    fn tokenizer() -> Tokenizer {
        let pieces = ["[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "##c", ".", "x"];
        let vocabulary = Vocabulary::from_tokens(pieces.map(str::to_owned)).unwrap();
        Tokenizer::new(Arc::new(vocabulary), Casing::Lower).unwrap()
    }

    fn documents(text: &str) -> Vec<Vec<Vec<u32>>> {
        let corpus = Corpus::of_text(text.as_bytes(), &tokenizer(), &ReadOptions::default());
        let corpus = corpus.unwrap();
        let of = |document: Document<'_>| {
            (0..document.len()).map(|i| document.sentence(i).to_vec()).collect()
        };
        (0..corpus.len()).map(|i| of(corpus.document(i))).collect()
    }

    #[test]
    fn lines_are_sentences_and_empty_lines_part_documents() {
        let expected = vec![vec![vec![4, 5], vec![6]], vec![vec![4, 7]]];
        assert_eq!(documents("a b\nc\n\nac\n"), expected);
        // Blank lines in a row, carriage returns, spaces that only Unicode knows, no last end,
        // and a line without any piece.
        assert_eq!(documents("\n\na b\r\nc\r\n \u{3000}\n\n\u{200b}\na\rc"), expected);
    }

    #[test]
    fn blocks_of_wiki_extractor_are_documents() {
        let text = "<doc id=\"1\" url=\"u\" title=\"A \"b\"\">\nA \"b\"\n\na b. C.\n\nx\n</doc>\n\
                    <doc id=\"2\" url=\"u\" title=\"C &amp; D\">\nC & D\nB\n</doc>\n";
        let first = vec![vec![4, 5, 8], vec![6, 8], vec![9]];
        assert_eq!(documents(text), [first.clone(), vec![vec![5]]]);
        // The end of a block that is missing is the end of the file, or the next block.
        assert_eq!(documents(&text.replace("</doc>\n", "")), [first, vec![vec![5]]]);
        let plain = ReadOptions { format: Format::Plain, ..ReadOptions::default() };
        let corpus = Corpus::of_text(text.as_bytes(), &tokenizer(), &plain).unwrap();
        assert_eq!((corpus.len(), corpus.report.files[0].format), (3, Format::Plain));
    }

    #[test]
    fn lines_of_json_are_documents() {
        let text = concat!(
            r#"{"id": "1", "url": "u", "title": "A \"b\"", "text": "A \"b\"\n\na b. C.\n\nx\n"}"#,
            "\n\n",
            r#"{"id": "2", "title": "C", "text": "B\nC\n</doc>"}"#,
            "\n",
        );
        let expected =
            [vec![vec![4, 5, 8], vec![6, 8], vec![9]], vec![vec![5], vec![6], vec![0; 4]]];
        let pieces = |text: &str| {
            let mut documents = documents(text);
            // `</doc>` is a text like any other.
            documents[1][2].iter_mut().for_each(|piece| *piece = 0);
            documents
        };
        assert_eq!(pieces(text), expected);
        assert_eq!(pieces(&format!("\u{feff}{text}").replace('\n', "\r\n")), expected);
        let broken = text.replace(r#""text": "B"#, r#""words": "B"#);
        let error = Corpus::of_text(broken.as_bytes(), &tokenizer(), &ReadOptions::default());
        let Error::InFile { source, .. } = error.unwrap_err() else { panic!() };
        let said = source.to_string();
        assert!(said.starts_with("line 3: expected a JSON object: missing field `text`"), "{said}");
    }

    #[test]
    fn a_mark_of_utf_8_hides_no_format() {
        let wiki = "<doc id=\"1\" title=\"A\">\nA\n\na b. C.\n</doc>\n";
        let expected = [vec![vec![4, 5, 8], vec![6, 8]]];
        assert_eq!(documents(wiki), expected);
        assert_eq!(documents(&format!("\u{feff}{wiki}")), expected);
        assert_eq!(documents("\u{feff}a b .\nc .\n"), expected);
    }

    #[test]
    fn files_are_one_text_unless_they_are_wiki() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["1", "2"].map(|name| folder.path().join(name));
        std::fs::write(&paths[0], "a\n").unwrap();
        std::fs::write(&paths[1], "b\n").unwrap();
        let options = ReadOptions::default();
        let mut told = Vec::new();
        let read = Corpus::read(&paths, &tokenizer(), &options, |done, of| told.push((done, of)));
        let report = read.unwrap().report;
        assert_eq!((report.documents, report.sentences, report.bytes), (1, 2, 4));
        for path in &paths {
            std::fs::write(path, "<doc id=\"\" title=\"\">\na\n").unwrap();
        }
        let report = Corpus::read(&paths, &tokenizer(), &options, |_, _| {}).unwrap().report;
        assert_eq!((report.documents, report.files[1].format), (2, Format::Wiki));
    }

    #[test]
    fn what_is_no_text_is_named_by_its_line() {
        let read = |text: &[u8]| Corpus::of_text(text, &tokenizer(), &ReadOptions::default());
        let said = |error: Error| match error {
            Error::InFile { source, .. } => source.to_string(),
            other => other.to_string(),
        };
        let error = said(read(b"a\nb\xff\n").unwrap_err());
        assert_eq!(error, "line 2: byte 2 of the line is not UTF-8");
        for empty in [&b""[..], b"\n\n", b" \n\xe2\x80\x8b\n", b"<doc id=\"\" title=\"a\">\na\n"] {
            let error = said(read(empty).unwrap_err());
            assert!(error.contains("no sentence"), "{error}");
        }
        let missing =
            Corpus::read(&["nowhere".into()], &tokenizer(), &Default::default(), |_, _| {});
        assert!(missing.unwrap_err().to_string().contains("nowhere"));
    }
}
