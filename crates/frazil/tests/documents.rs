//! The README and the guides are run: every `console` block must print what it shows. A block that
//! begins with ```` ```csv file=pairs.csv ```` is that file.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn documents_say_what_happens() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // The documents speak of what `frazil demo` has made in the folder they are read in.
    let folder = tempfile::tempdir().unwrap();
    let demo = Command::new(env!("CARGO_BIN_EXE_frazil"))
        .arg("demo")
        .current_dir(&folder)
        .output()
        .unwrap();
    assert!(demo.status.success(), "{}", String::from_utf8_lossy(&demo.stderr));
    let said = String::from_utf8_lossy(&demo.stdout);
    assert_eq!(said.matches("for your own files:").count(), said.matches("$ frazil ").count());
    let mut documents = vec![root.join("README.md")];
    for kind in ["guides", "concepts"] {
        let pages = fs::read_dir(root.join("docs").join(kind)).into_iter().flatten();
        documents.extend(pages.map(|page| page.unwrap().path()));
    }
    std::env::set_current_dir(&folder).unwrap(); // commands run in the process's folder
    let cases = trycmd::TestCases::new();
    for document in documents {
        let copy = folder.path().join(document.file_name().unwrap());
        fs::copy(&document, &copy).unwrap();
        for (name, text) in files(&fs::read_to_string(&document).unwrap()) {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        cases.case(&copy);
    }
    cases.run();
}

/// The files that a document shows: their names and what is in them.
fn files(document: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        let name = line.strip_prefix("```").and_then(|info| info.split_once(" file="));
        let Some((_, name)) = name else { continue };
        let text = lines.by_ref().take_while(|line| *line != "```");
        files.push((name.to_owned(), text.map(|line| format!("{line}\n")).collect()));
    }
    files
}
