//! What an interruption leaves: nothing. In a process of its own, since it cannot be taken back.

use std::io::Write;

use frazil_tensor::file::{AtomicFile, go_on, interrupt, write};

#[test]
fn an_interrupted_file_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights");
    write(&path, b"before").unwrap();
    let mut file = AtomicFile::create(&path).unwrap();
    file.write_all(b"half").unwrap();
    go_on().unwrap();
    assert!(interrupt(), "one file is unfinished");
    assert_eq!(go_on().unwrap_err().to_string(), "interrupted");
    let refused = file.write_all(b"more").unwrap_err();
    assert_eq!(refused.to_string(), "interrupted");
    drop(file);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    assert_eq!(std::fs::read(&path).unwrap(), b"before");
    assert!(!interrupt(), "none is left");
}
