//! What the compiler does not see: sizes of files, headers of modules, layering of crates,
//! words that do not belong in the tree.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Past this many lines a file wants to be a folder.
const LONGEST_FILE: usize = 800;
/// The README is one page.
const LONGEST_README: usize = 150;

/// Which workspace crates each crate may use: the table of ARCHITECTURE.md.
const LAYERS: &[(&str, &[&str])] = &[
    ("frazil-tensor", &[]),
    ("frazil-tf", &["frazil-tensor"]),
    ("frazil-graph", &["frazil-tensor"]),
    ("frazil-convert", &["frazil-graph", "frazil-tensor", "frazil-tf"]),
    ("frazil-kernels", &[]),
    ("frazil-runtime", &["frazil-graph", "frazil-kernels", "frazil-tensor"]),
    ("frazil-bert", &["frazil-graph", "frazil-tensor", "frazil-tf"]),
    ("frazil-tune", &["frazil-graph", "frazil-tensor"]),
    (
        "frazil-train",
        &[
            "frazil-bert",
            "frazil-graph",
            "frazil-kernels",
            "frazil-runtime",
            "frazil-tensor",
            "frazil-tf",
        ],
    ),
    (
        "frazil",
        &[
            "frazil-bert",
            "frazil-convert",
            "frazil-graph",
            "frazil-kernels",
            "frazil-runtime",
            "frazil-tensor",
            "frazil-tf",
            "frazil-train",
            "frazil-tune",
        ],
    ),
];

/// Fails with a list of everything that is untidy.
pub fn run(args: &[&str]) -> Result<()> {
    if !args.is_empty() {
        bail!("tidy takes no arguments");
    }
    let root = crate::root();
    let files = tracked(&root)?;
    let mut complaints = Vec::new();
    for file in &files {
        let Ok(text) = fs::read_to_string(root.join(file)) else { continue };
        check_text(file, &text, &mut complaints);
        if file.extension().is_some_and(|e| e == "rs") {
            check_rust(file, &text, &mut complaints);
        }
    }
    check_layers(&root, &mut complaints)?;
    check_dependencies(&root, &mut complaints)?;
    check_licences(&root, &mut complaints)?;
    if !complaints.is_empty() {
        bail!("the tree is untidy:\n  {}", complaints.join("\n  "));
    }
    println!("{} files are tidy", files.len());
    Ok(())
}

fn tracked(root: &Path) -> Result<Vec<PathBuf>> {
    let listing = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("running `git ls-files`")?;
    if !listing.status.success() {
        bail!("`git ls-files` failed");
    }
    let listing = String::from_utf8(listing.stdout).context("a file name is not UTF-8")?;
    Ok(listing.lines().map(PathBuf::from).filter(|file| root.join(file).is_file()).collect())
}

fn check_text(file: &Path, text: &str, complaints: &mut Vec<String>) {
    let name = file.display();
    let prose =
        file.extension().is_some_and(|e| e == "rs" || e == "md" || e == "toml" || e == "py");
    if !prose {
        return;
    }
    for (i, line) in text.lines().enumerate() {
        let at = i + 1;
        if line.ends_with([' ', '\t']) && !generated(file) {
            complaints.push(format!("{name}:{at}: trailing space"));
        }
        // Spelled in two parts, so that this file does not complain of itself.
        for word in [
            concat!("TO", "DO"),
            concat!("FIX", "ME"),
            concat!("todo", "!("),
            concat!("unimple", "mented!("),
        ] {
            if line.contains(word) {
                complaints.push(format!("{name}:{at}: `{word}`: finish it, or leave it out"));
            }
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        complaints.push(format!("{name}: no newline at the end"));
    }
    if file == Path::new("README.md") && text.lines().count() > LONGEST_README {
        complaints.push(format!("{name}: more than {LONGEST_README} lines"));
    }
}

fn check_rust(file: &Path, text: &str, complaints: &mut Vec<String>) {
    let name = file.display();
    if generated(file) {
        return;
    }
    let lines = text.lines().count();
    if lines > LONGEST_FILE {
        complaints.push(format!(
            "{name}: {lines} lines; past {LONGEST_FILE} a file wants to be a folder"
        ));
    }
    let opens_with_purpose = text
        .lines()
        .find(|line| !line.starts_with("#!"))
        .is_some_and(|line| line.starts_with("//!"));
    // A fuzz target is one line; `fuzz/src/lib.rs` says what they are for.
    if !opens_with_purpose && !file.starts_with("fuzz/fuzz_targets") {
        complaints.push(format!("{name}: does not open with what the module is for (`//!`)"));
    }
    for part in ["utils", "common", "helpers", "manager", "misc"] {
        if file.components().any(|c| c.as_os_str() == part)
            || file.file_stem().is_some_and(|stem| stem == part)
        {
            complaints.push(format!("{name}: `{part}` says nothing; name it for what it does"));
        }
    }
    // The one memory map, the kernels, and allocators that count.
    let may_be_unsafe = [
        "crates/frazil-tensor/src/file.rs",
        "crates/frazil-kernels",
        "crates/frazil/tests/hostile/memory.rs",
    ];
    if text.contains(concat!("allow(", "unsafe_code"))
        && !may_be_unsafe.iter().any(|path| file.starts_with(path))
    {
        complaints.push(format!("{name}: `unsafe` outside of the kernels and the one memory map"));
    }
}

/// Generated Rust is remade, not read.
fn generated(file: &Path) -> bool {
    ["proto/tensorflow.rs", "proto/onnx.rs", "proto/schema.rs", "unicode/table.rs"]
        .iter()
        .any(|end| file.ends_with(end))
}

fn check_layers(root: &Path, complaints: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(root.join("crates"))? {
        let folder = entry?.path();
        let manifest = folder.join("Cargo.toml");
        if !manifest.is_file() {
            continue;
        }
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| *layer == name) else {
            complaints
                .push(format!("crates/{name}: not in the table of layers (xtask/src/tidy.rs)"));
            continue;
        };
        let text = fs::read_to_string(&manifest)?;
        for dependency in section(&text, "[dependencies]") {
            if dependency.starts_with("frazil") && !allowed.contains(&dependency.as_str()) {
                complaints.push(format!("crates/{name} must not use {dependency}"));
            }
        }
    }
    Ok(())
}

/// Every crate from outside has its reason in `docs/dependencies.md`, and only those are there.
fn check_dependencies(root: &Path, complaints: &mut Vec<String>) -> Result<()> {
    let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    let page = fs::read_to_string(root.join("docs/dependencies.md"))?;
    let used: BTreeSet<String> = section(&manifest, "[workspace.dependencies]")
        .into_iter()
        .filter(|name| !name.starts_with("frazil"))
        .collect();
    let told: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|rest| rest.split_once('`'))
        .map(|(name, _)| name.to_owned())
        .collect();
    for name in used.difference(&told) {
        complaints.push(format!("docs/dependencies.md: no reason for `{name}`"));
    }
    for name in told.difference(&used) {
        complaints.push(format!("docs/dependencies.md: `{name}` is not a dependency"));
    }
    Ok(())
}

/// Every crate in the lock file is under a licence that `deny.toml` allows.
fn check_licences(root: &Path, complaints: &mut Vec<String>) -> Result<()> {
    let policy = fs::read_to_string(root.join("deny.toml"))?;
    let allowed: Vec<&str> = policy
        .split_once("allow = [")
        .and_then(|(_, rest)| rest.split_once(']'))
        .map(|(list, _)| list.split(',').map(|name| name.trim().trim_matches('"')).collect())
        .context("deny.toml has no list `allow`")?;
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .context("running `cargo metadata`")?;
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout)?;
    for package in metadata["packages"].as_array().context("no packages")? {
        let licence = package["license"].as_str().unwrap_or("none");
        if !is_allowed(licence, &allowed) {
            complaints
                .push(format!("{}: licence `{licence}` is not in deny.toml", package["name"]));
        }
    }
    Ok(())
}

/// `(A OR B) AND C`, with `/` as the old spelling of OR: one of each group must be allowed.
fn is_allowed(licence: &str, allowed: &[&str]) -> bool {
    let plain = licence.replace(['(', ')'], "").replace('/', " OR ");
    plain.split(" AND ").all(|group| group.split(" OR ").any(|name| allowed.contains(&name.trim())))
}

/// The keys of one table of a manifest.
fn section(manifest: &str, header: &str) -> Vec<String> {
    manifest
        .lines()
        .skip_while(|line| line.trim() != header)
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['=', '.']).next())
        .map(|key| key.trim().to_owned())
        .filter(|key| !key.is_empty() && !key.starts_with('#'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_end_at_the_next_header() {
        let manifest = "[a]\nx = 1\n\n[dependencies]\n# why\nbytes.workspace = true\nzip = \"9\"\n\n[b]\ny = 2\n";
        assert_eq!(section(manifest, "[dependencies]"), ["bytes", "zip"]);
    }

    #[test]
    fn licences_are_read_as_expressions() {
        let allowed = ["MIT", "Unicode-3.0"];
        assert!(is_allowed("MIT/Apache-2.0", &allowed));
        assert!(is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0", &allowed));
        assert!(!is_allowed("MIT AND GPL-3.0", &allowed));
        assert!(!is_allowed("none", &allowed));
    }

    #[test]
    fn complains_of_what_it_should() {
        let mut complaints = Vec::new();
        check_rust(Path::new("crates/x/src/utils.rs"), "fn f() {}\n", &mut complaints);
        assert_eq!(complaints.len(), 2, "{complaints:?}");
        complaints.clear();
        check_text(Path::new("a.md"), concat!("x \nTO", "DO\nend"), &mut complaints);
        assert_eq!(complaints.len(), 3, "{complaints:?}");
    }
}
