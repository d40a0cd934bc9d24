//! Words of messages: what helps where nothing lies at a path, and plurals.

use std::path::Path;

use crate::nearest;

/// `row` of one, `rows` of none and of several.
pub fn plural(count: impl TryInto<u64>, noun: &str) -> String {
    match count.try_into() {
        Ok(1) => noun.to_owned(),
        _ => format!("{noun}s"),
    }
}

/// Names that lie beside `path` and look like it, as paths.
pub fn near(path: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder_of(path)) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    let wanted = path.file_name().unwrap_or_default().to_string_lossy();
    let near = nearest(&wanted, names.iter().map(String::as_str));
    near.iter().map(|name| path.with_file_name(name).display().to_string()).collect()
}

/// What to do where there is no `path`: the names that may be meant, or the folder that is missing.
pub fn missing(path: &Path, to_be_made: bool) -> Option<String> {
    let did_you_mean = |near: Vec<String>| match near.is_empty() {
        true => None,
        false => Some(format!("did you mean `{}`?", near.join("` or `"))),
    };
    let folder = folder_of(path);
    if folder.is_dir() {
        let stranger = || match folder == Path::new(".") {
            true => "no file in the folder where you are has a name like that".to_owned(),
            false => format!("no file in `{}` has a name like that", folder.display()),
        };
        return (!to_be_made).then(|| did_you_mean(near(path)).unwrap_or_else(stranger));
    }
    let none = format!("there is no folder `{}`", folder.display());
    if to_be_made {
        return Some(format!("{none}: `mkdir -p {}` makes it", folder.display()));
    }
    // The highest one that is not there is the one that is mistyped.
    let highest = folder.ancestors().take_while(|folder| !folder.exists()).last();
    let meant = highest.filter(|folder| !folder.as_os_str().is_empty()).map(near);
    Some(match meant.and_then(did_you_mean) {
        Some(meant) => format!("{none}; {meant}"),
        None => none,
    })
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!(plural(1u64, "row"), "row");
        assert_eq!(plural(0usize, "row"), "rows");
        assert_eq!(plural(2usize, "row"), "rows");
        assert_eq!(plural(u128::MAX, "row"), "rows");
    }

    #[test]
    fn what_is_missing_is_told_from_what_is_there() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        std::fs::create_dir(at("data")).unwrap();
        std::fs::write(at("data/inputs.npz"), "").unwrap();
        let shown = |name: &str| at(name).display().to_string();
        let meant = missing(&at("data/input.npz"), false);
        assert_eq!(meant, Some(format!("did you mean `{}`?", shown("data/inputs.npz"))));
        let stranger = missing(&at("data/zzz"), false).unwrap();
        assert_eq!(stranger, format!("no file in `{}` has a name like that", shown("data")));
        assert_eq!(missing(&at("data/new"), true), None);
        let folder = missing(&at("dato/deep/x"), false).unwrap();
        let (none, near) = (shown("dato/deep"), shown("data"));
        assert_eq!(folder, format!("there is no folder `{none}`; did you mean `{near}`?"));
        let folder = missing(&at("new/x"), true).unwrap();
        let new = shown("new");
        assert_eq!(folder, format!("there is no folder `{new}`: `mkdir -p {new}` makes it"));
    }
}
