//! Files by patterns, as programs take lists of them: `a.txt,parts/wiki_*`.

use std::path::{Component, Path, PathBuf};

use frazil_tensor::{file, words};

use crate::{Error, Result};

/// The files that patterns name: `*`, `?` and `[…]` stand for what they do in a shell. Each pattern
/// gives its files sorted; one that gives none is an error, as is a file that is not there. As there, hidden
/// files are only named by what begins with a dot: a program that was killed may have left some.
pub fn files(patterns: &[String]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for pattern in patterns {
        let path = Path::new(pattern);
        if path.exists() || !pattern.contains(['*', '?', '[']) {
            match path.is_dir() {
                true => {
                    return Err(Error::Usage {
                        what: format!("`{pattern}` is a folder, where files are wanted"),
                        hint: format!("`{}` names all files in it", path.join("*").display()),
                    });
                }
                false if path.exists() => files.push(path.to_path_buf()),
                false => return Err(not_found(path)),
            }
            continue;
        }
        let wrong = |reason: String| Error::Usage {
            what: format!("`{pattern}` is no pattern of file names: {reason}"),
            hint: "`*` and `?` stand for anything, `[ab]` for one of these".into(),
        };
        let before = files.len();
        for found in glob::glob(pattern).map_err(|error| wrong(error.to_string()))? {
            let found = found.map_err(|error| Error::Read {
                path: error.path().to_path_buf(),
                source: error.into(),
            })?;
            if found.is_file() && hidden(&found) == hidden(path) {
                files.push(found);
            }
        }
        if files.len() == before {
            return Err(Error::Usage {
                what: format!("no file is called `{pattern}`"),
                hint: "the pattern is matched from the folder where you are".into(),
            });
        }
    }
    Ok(files)
}

/// How many names in a path begin with a dot. Those of a pattern match as many; if there are more, `*` and its
/// like have matched the others. (`glob`'s own option for this refuses `.a*`, and panics at names that are no text.)
fn hidden(path: &Path) -> usize {
    let is_hidden = |part: &Component| matches!(part, Component::Normal(name) if name.as_encoded_bytes().starts_with(b"."));
    path.components().filter(is_hidden).count()
}

fn not_found(path: &Path) -> Error {
    let near = words::near(path);
    match near.is_empty() {
        true => Error::Usage {
            what: format!("there is no `{}`", path.display()),
            hint: "name a file, several with commas between them, or a pattern".into(),
        },
        false => Error::NotFound { path: path.to_path_buf(), near },
    }
}

/// The same for a list with commas, as the old programs take it: a comma too many names nothing.
pub fn files_of_list(list: &str) -> Result<Vec<PathBuf>> {
    let named = list.split(',').filter(|name| !name.is_empty());
    let patterns: Vec<String> = named.map(str::to_owned).collect();
    match patterns.is_empty() {
        true => Err(Error::Usage {
            what: "no file to read is named".into(),
            hint: "name a file, several with commas between them, or a pattern".into(),
        }),
        false => files(&patterns),
    }
}

/// Makes sure that nothing is written over what is read, or over something else that is written.
pub fn keep_apart(read: &[PathBuf], written: &[PathBuf]) -> Result<()> {
    let mut taken: Vec<PathBuf> = read.iter().map(|path| place(path)).collect();
    for path in written {
        let place = place(path);
        if let Some(at) = taken.iter().position(|taken| *taken == place) {
            let path = path.display();
            return Err(match at < read.len() {
                true => Error::Usage {
                    what: format!("`{path}` is read, and would be written over"),
                    hint: "name another file to write".into(),
                },
                false => Error::Usage {
                    what: format!("`{path}` is to be written twice"),
                    hint: "name each file to write once".into(),
                },
            });
        }
        taken.push(place);
    }
    Ok(())
}

/// Where a path leads, even if no file is there yet.
pub(crate) fn place(path: &Path) -> PathBuf {
    let new = || {
        let end = file::through_links(path).ok()?;
        let folder = end.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some(folder.join(end.file_name()?))
    };
    path.canonicalize().ok().or_else(new).unwrap_or_else(|| path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_files_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["b1", "a2", "a1", "a[1]", ".a2.x1Y2z3.partial"] {
            std::fs::write(at(name), "").unwrap();
        }
        std::fs::create_dir(at("a3")).unwrap();
        let named = |list: &str| {
            let list: Vec<String> =
                list.split(',').map(|name| at(name).display().to_string()).collect();
            let found = files_of_list(&list.join(","))?;
            let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
            Ok::<_, Error>(found.into_iter().map(name).collect::<Vec<_>>())
        };
        assert_eq!(named("b?,a[12]").unwrap(), ["b1", "a1", "a2"]);
        assert_eq!(named("a[1]").unwrap(), ["a[1]"], "a file of that very name goes first");
        assert_eq!(named("a*").unwrap(), ["a1", "a2", "a[1]"], "folders are no files");
        assert_eq!(named("*").unwrap(), ["a1", "a2", "a[1]", "b1"], "hidden files are not meant");
        for hidden in ["?a2*", "[.]a2*"] {
            assert!(named(hidden).unwrap_err().to_string().starts_with("no file is called"));
        }
        std::fs::create_dir(at(".d")).unwrap();
        std::fs::write(at(".d/a4"), "").unwrap();
        assert!(named("*/a4").is_err() && named("?d/a4").is_err());
        assert_eq!(named(".d/a*").unwrap(), ["a4"]);
        assert_eq!(named(".*/*4").unwrap(), ["a4"]);
        assert_eq!(named(".a*").unwrap(), [".a2.x1Y2z3.partial"]);
        assert_eq!(files_of_list(",").unwrap_err().to_string(), "no file to read is named");
        let one = format!("{},", at("a1").display());
        assert_eq!(files_of_list(&one).unwrap(), [at("a1")], "a comma too many");
        let error = named("c*").unwrap_err().to_string();
        assert!(error.starts_with("no file is called"), "{error}");
        assert!(named("a3").unwrap_err().to_string().contains("is a folder"));
        assert!(named("a[").unwrap_err().to_string().contains("is no pattern"));
        let missing = named("a11").unwrap_err();
        assert!(missing.hint().unwrap().contains("a1"), "{missing:?}");
    }

    #[test]
    fn nothing_is_written_over_what_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("a"), "").unwrap();
        let apart = |read: &[PathBuf], written: &[PathBuf]| {
            keep_apart(read, written).map_err(|error| error.to_string())
        };
        assert_eq!(apart(&[at("a"), at("a")], &[at("b"), at("c"), at("d/a")]), Ok(()));
        let dotted = at(".").join("a");
        assert!(apart(&[at("a")], &[at("b"), dotted]).unwrap_err().contains("is read, and would"));
        let twice = apart(&[at("a")], &[at("b"), at("c"), at("./b")]).unwrap_err();
        assert!(twice.contains("/b` is to be written twice"), "{twice}");
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("b", at("link")).unwrap();
            let twice = apart(&[at("a")], &[at("b"), at("link")]).unwrap_err();
            assert!(twice.contains("/link` is to be written twice"), "{twice}");
        }
    }
}
