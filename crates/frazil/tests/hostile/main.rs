//! Tens of thousands of damaged files through every parser: none may panic, none may take long,
//! none may make the program allocate more than 64 MB and four times the file's size.
//!
//! The damage is the same on every run. A case that fails is written to the folder that the
//! message names; put it into a unit test or into `fuzz/corpus`.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test may fail loudly and talk")]

mod amplify;
mod memory;
mod mutate;
mod parsers;

use std::collections::BTreeMap;
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use frazil_tensor::safetensors::SafeTensorsWriter;
use frazil_tensor::{Tensor, TensorInfo, npy, testing};
use frazil_tf::tfrecord::RecordReader;

use self::mutate::{Random, mutate};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// Damaged files per parser.
const CASES: usize = 4000;
/// Larger files than this are left to the parsers' own tests.
const LARGEST: usize = 128 << 10;
const FREE: usize = 64 << 20;
const PER_BYTE: usize = 4;
const SLOW: Duration = Duration::from_secs(3);
const HANGS: u64 = 30;

/// Whole files by kind: those of the crates' own tests, and of the shared goldens if they are
/// there.
struct Seeds(BTreeMap<&'static str, Vec<Vec<u8>>>);

impl Seeds {
    fn collect() -> Self {
        let mut seeds = Self(BTreeMap::new());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        seeds.add_folder(&root.join("frazil-tf/tests/fixtures"));
        seeds.add_folder(&root.join("frazil-tensor/tests/fixtures"));
        seeds.add_folder(&root.join("frazil-convert/tests/fixtures/onnx"));
        if let Some(shared) = testing::shared("fixtures") {
            seeds.add_folder(&shared);
        }
        let tensor = Tensor::from_vec([2, 3], vec![1f32; 6]).unwrap();
        let mut array = Vec::new();
        npy::write(&mut array, &tensor).unwrap();
        seeds.add("npy", array);
        let strings = Tensor::from_strings([2], vec!["a".into(), "bc".into()]).unwrap();
        let mut array = Vec::new();
        npy::write(&mut array, &strings).unwrap();
        seeds.add("npy", array);
        seeds.add("safetensors", safetensors(&tensor));
        for kind in ["openvino", "samples", "vocabulary"] {
            for file in fuzz_seeds(kind) {
                seeds.add(kind, file);
            }
        }
        seeds
    }

    fn add(&mut self, kind: &'static str, bytes: Vec<u8>) {
        self.0.entry(kind).or_default().push(bytes);
    }

    fn add_folder(&mut self, folder: &Path) {
        let mut entries: Vec<PathBuf> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                self.add_folder(&path);
                continue;
            }
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if fs::metadata(&path).unwrap().len() as usize > LARGEST {
                continue;
            }
            let bytes = fs::read(&path).unwrap();
            for kind in kinds(&name) {
                self.add(kind, bytes.clone());
            }
            if kinds(&name) == ["tfrecord"] {
                let records = RecordReader::open(&path).unwrap().flatten().take(3);
                records.for_each(|record| self.add("example", record.to_vec()));
            }
        }
    }

    fn of(&self, kind: &str) -> &[Vec<u8>] {
        let seeds = self.0.get(kind);
        seeds.unwrap_or_else(|| panic!("there is no file to damage for `{kind}`"))
    }
}

fn kinds(name: &str) -> &'static [&'static str] {
    if name.ends_with(".json") {
        return &[];
    }
    if name.contains("tfrecord") || name.contains("tf_record") || name.ends_with(".events") {
        return &["tfrecord"];
    }
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "npz" => &["npz", "zip"],
        "onnx" => &["onnx"],
        "zip" => &["zip"],
        "index" => &["sstable"],
        "meta" => &["meta_graph"],
        "pbtxt" => &["pbtxt"],
        "pb" if name == "saved_model.pb" => &["saved_model"],
        "pb" => &["graph_def"],
        _ if name == "checkpoint" => &["pbtxt"],
        _ if name.starts_with("v1_") => &["sstable"],
        _ => &[],
    }
}

fn safetensors(tensor: &Tensor) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let info = |name: &str| TensorInfo {
        name: name.into(),
        dtype: tensor.dtype(),
        shape: tensor.shape().clone(),
    };
    let metadata = [("format".to_owned(), "pt".to_owned())].into();
    let mut writer =
        SafeTensorsWriter::create(&path, &[info("a.weight"), info("b.bias")], &metadata).unwrap();
    writer.add(tensor).unwrap();
    writer.add(tensor).unwrap();
    writer.finish().unwrap();
    fs::read(&path).unwrap()
}

/// Runs cases, watches them and remembers what went wrong.
struct Run {
    cases: usize,
    failures: Vec<String>,
    folder: PathBuf,
    message: Arc<Mutex<String>>,
    /// The present case, by name.
    present: Arc<Mutex<String>>,
    /// Seconds since the start at which the present case began; 0 between cases.
    began: Arc<AtomicU64>,
    start: Instant,
}

impl Run {
    fn new() -> Self {
        let message = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&message);
        panic::set_hook(Box::new(move |info| *heard.lock().unwrap() = info.to_string()));
        let (start, began) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostile");
        fs::create_dir_all(&folder).unwrap();
        let present = Arc::new(Mutex::new(String::new()));
        let (watched, name) = (Arc::clone(&began), Arc::clone(&present));
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_secs(1));
                let began = watched.load(Relaxed);
                if began > 0 && start.elapsed().as_secs() > began + HANGS {
                    eprintln!("case {} does not end", name.lock().unwrap());
                    std::process::abort();
                }
            }
        });
        Self { cases: 0, failures: Vec::new(), folder, message, present, began, start }
    }

    /// A run that cannot fail would be worth nothing.
    fn check_itself(&mut self) {
        self.case("panics", b"", 0, || panic!("as it should"));
        self.case("allocates", b"", 0, || drop(vec![1u8; FREE + 1]));
        self.case("behaves", b"", 0, || drop(vec![1u8; FREE / 2]));
        let failures = std::mem::take(&mut self.failures);
        assert_eq!(failures.len(), 2, "{failures:?}");
        assert!(failures[0].contains("as it should") && failures[1].contains("allocated"));
        self.cases = 0;
    }

    /// One case: `size` is the size of all files that `work` reads, `input` the damaged one.
    fn case(&mut self, name: &str, input: &[u8], size: usize, work: impl FnOnce()) {
        self.cases += 1;
        *self.present.lock().unwrap() = format!("{name}-{}", self.cases);
        self.began.store(self.start.elapsed().as_secs().max(1), Relaxed);
        let started = busy(self.start);
        let mut outcome = Ok(());
        let peak = memory::peak_of(|| outcome = panic::catch_unwind(AssertUnwindSafe(work)));
        let took = busy(self.start).saturating_sub(started);
        self.began.store(0, Relaxed);
        let limit = FREE + PER_BYTE * size;
        let wrong = if outcome.is_err() {
            self.message.lock().unwrap().clone()
        } else if peak > limit {
            format!("{peak} bytes allocated for a file of {size}")
        } else if took > SLOW {
            format!("it took {took:?}")
        } else {
            return;
        };
        let path = self.folder.join(format!("{name}-{}", self.cases));
        fs::write(&path, input).unwrap();
        self.failures.push(format!("{}: {wrong}", path.display()));
    }
}

/// Files that once made a parser fail, among others.
fn fuzz_seeds(kind: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(kind);
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let is_seed = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("seed-");
    let seeds: Vec<Vec<u8>> = files.filter(is_seed).map(|path| fs::read(path).unwrap()).collect();
    assert!(!seeds.is_empty(), "{}", folder.display());
    seeds
}

type Parser = fn(&[u8]);

#[test]
fn damaged_files_are_refused_or_read() {
    let parsers: [(&str, Parser); 15] = [
        ("npy", parsers::npy),
        ("npz", parsers::npz),
        ("safetensors", parsers::safetensors),
        ("zip", parsers::zip),
        ("tfrecord", parsers::tfrecord),
        ("example", parsers::example),
        ("sstable", parsers::sstable),
        ("graph_def", parsers::graph_def),
        ("meta_graph", parsers::meta_graph),
        ("saved_model", parsers::saved_model),
        ("pbtxt", parsers::pbtxt),
        ("openvino", parsers::openvino),
        ("onnx", parsers::onnx),
        ("vocabulary", parsers::vocabulary),
        ("samples", parsers::samples),
    ];
    let seeds = Seeds::collect();
    let mut run = Run::new();
    run.check_itself();
    for (kind, parser) in parsers {
        let started = Instant::now();
        let files = seeds.of(kind);
        for file in files.iter().chain(&fuzz_seeds(kind)) {
            run.case(kind, file, file.len(), || parser(file));
        }
        for case in 0..CASES {
            let mut random = Random::new(case as u64 + 1);
            let file = &files[case % files.len()];
            let other = &files[random.below(files.len())];
            let bad = mutate(file, other, &mut random);
            run.case(kind, &bad, bad.len(), || parser(&bad));
        }
        eprintln!("{kind}: {} files, {:.1?}", files.len(), started.elapsed());
    }
    let amplified: [(&str, Parser, Vec<u8>); 16] = [
        ("npy", parsers::npy, amplify::npy_of_short_strings()),
        ("safetensors", parsers::safetensors, amplify::safetensors_of_empty_tensors()),
        ("safetensors", parsers::safetensors, amplify::safetensors_of_many_axes()),
        ("zip", parsers::zip, amplify::zip_of_empty_members()),
        ("graph_def", parsers::graph_def, amplify::binary_of_empty_nodes()),
        ("pbtxt", parsers::graph_text, amplify::text_of_empty_nodes()),
        ("pbtxt", parsers::graph_text, amplify::text_of_empty_values()),
        ("pbtxt", parsers::graph_text, amplify::deep_text()),
        ("openvino", parsers::openvino, amplify::xml_of_empty_layers()),
        ("openvino", parsers::openvino, amplify::xml_of_empty_ports()),
        ("openvino", parsers::openvino, amplify::deep_xml()),
        ("onnx", parsers::onnx, amplify::onnx_of_empty_nodes()),
        ("vocabulary", parsers::vocabulary, amplify::lines_of_short_pieces()),
        ("vocabulary", parsers::vocabulary, amplify::lines_of_long_pieces()),
        ("vocabulary", parsers::vocabulary, amplify::json_of_short_pieces()),
        ("vocabulary", parsers::vocabulary, amplify::json_of_a_large_id()),
    ];
    for (kind, parser, file) in amplified {
        run.case(kind, &file, file.len(), || parser(&file));
    }
    let started = Instant::now();
    checkpoints(&mut run);
    eprintln!("checkpoint: {:.1?}", started.elapsed());
    drop(panic::take_hook());
    println!("{} damaged files in {:.1?}", run.cases, run.start.elapsed());
    assert!(run.failures.is_empty(), "{}", run.failures.join("\n"));
    assert!(run.cases >= 20_000, "{}", run.cases);
}

/// How long this thread has computed, where the system says; else how long ago `start` was. Other
/// programs on the machine then do not make a file slow.
fn busy(start: Instant) -> Duration {
    let said = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = said.and_then(|said| said.split(' ').next()?.parse().ok());
    nanoseconds.map_or_else(|| start.elapsed(), Duration::from_nanos)
}

/// Checkpoints are several files: each in turn is damaged, beside the others as they were.
fn checkpoints(run: &mut Run) {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../frazil-tf/tests/fixtures/checkpoints");
    let scratch = tempfile::tempdir().unwrap();
    let mut prefixes: BTreeMap<String, Vec<(PathBuf, Vec<u8>)>> = BTreeMap::new();
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.starts_with('v') && !name.starts_with("tf2") || name.ends_with(".json") {
            continue;
        }
        let stem = name.split(['.', '-']).next().unwrap().to_owned();
        let bytes = fs::read(&path).unwrap();
        let copy = scratch.path().join(&name);
        fs::write(&copy, &bytes).unwrap();
        prefixes.entry(stem).or_default().push((copy, bytes));
    }
    let all: Vec<(&String, &(PathBuf, Vec<u8>))> = prefixes
        .iter()
        .flat_map(|(stem, files)| files.iter().map(move |file| (stem, file)))
        .collect();
    assert!(all.len() >= 15, "{}", all.len());
    for (kind, name) in [("bundle", "seed.index"), ("checkpoint_v1", "seed")] {
        let path = scratch.path().join(name);
        for seed in fuzz_seeds(kind) {
            fs::write(&path, &seed).unwrap();
            let prefix = scratch.path().join("seed");
            run.case(kind, &seed, seed.len(), || parsers::checkpoint(&prefix));
            fs::remove_file(&path).unwrap();
        }
    }
    for case in 0..2 * CASES {
        let mut random = Random::new(case as u64 + 1);
        let (stem, (path, bytes)) = all[case % all.len()];
        let (_, (_, other)) = all[random.below(all.len())];
        let bad = mutate(bytes, other, &mut random);
        replace(path, &bad);
        let size: usize = prefixes[stem].iter().map(|(_, bytes)| bytes.len()).sum();
        let prefix = scratch.path().join(stem);
        run.case(stem, &bad, size - bytes.len() + bad.len(), || parsers::checkpoint(&prefix));
        replace(path, bytes);
    }
}

/// A file system may write out a file that is cut and written again at once; a new file it keeps
/// in memory, which makes the run ten times as fast.
fn replace(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}
