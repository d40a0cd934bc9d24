//! `shims`: links of the old tools' names to this program, so that scripts that call them go on
//! working.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::{Error, Result};

/// What was linked.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where the links are.
    pub folder: PathBuf,
    /// What they lead to.
    pub program: PathBuf,
    /// Links that were made.
    pub made: Vec<PathBuf>,
    /// Links that were there already.
    pub kept: Vec<PathBuf>,
    /// Whether the folder is on the `PATH`.
    pub on_path: bool,
}

/// Links each of `names` in `folder` to `program`. What is there under such a name and leads
/// elsewhere is replaced only with `force`; nothing is linked if one of them is in the way.
pub fn shims(folder: &Path, program: &Path, names: &[&str], force: bool) -> Result<Report> {
    let wrong = |action: &'static str, path: &Path, source: io::Error| {
        let path = path.to_path_buf();
        Error::from(frazil_tensor::Error::Io { action, path, source })
    };
    fs::create_dir_all(folder).map_err(|source| wrong("create", folder, source))?;
    let folder = folder.canonicalize().map_err(|source| wrong("find", folder, source))?;
    let (mut made, mut kept) = (Vec::new(), Vec::new());
    for name in names {
        let path = folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
        match fs::symlink_metadata(&path) {
            Err(_) => made.push(path),
            Ok(_) if leads_to(&path, program) => kept.push(path),
            Ok(_) if force => made.push(path),
            Ok(_) => {
                return Err(Error::Usage {
                    what: format!("`{}` is there already, and is not frazil", path.display()),
                    hint: "give another folder, or replace it with `--force`".into(),
                });
            }
        }
    }
    for path in &made {
        link(program, path).map_err(|source| wrong("link", path, source))?;
    }
    let on_path = std::env::var_os("PATH").is_some_and(|paths| {
        std::env::split_paths(&paths)
            .any(|path| path.canonicalize().is_ok_and(|path| path == folder))
    });
    Ok(Report { folder, program: program.to_path_buf(), made, kept, on_path })
}

fn leads_to(path: &Path, program: &Path) -> bool {
    match (path.canonicalize(), program.canonicalize()) {
        (Ok(path), Ok(program)) => path == program,
        _ => false,
    }
}

/// Under a name of its own first, so that what is replaced is never missing.
fn link(program: &Path, path: &Path) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let fresh = path.with_file_name(name);
    #[cfg(unix)]
    std::os::unix::fs::symlink(program, &fresh)?;
    #[cfg(not(unix))]
    fs::hard_link(program, &fresh).or_else(|_| fs::copy(program, &fresh).map(drop))?;
    fs::rename(&fresh, path).inspect_err(|_| drop(fs::remove_file(&fresh)))
}
