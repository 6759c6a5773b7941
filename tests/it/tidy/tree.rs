//! The files of the repository.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// What tools put there.
const NOT_OURS: [&str; 4] = ["target", ".git", "node_modules", "__pycache__"];

/// One file of the repository.
pub(super) struct File {
    /// From the root, with `/`.
    pub(super) path: String,
    full: PathBuf,
}

impl File {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.full).unwrap()).into_owned()
    }

    /// Source, SQL, templates, stylesheets and scripts.
    pub(super) fn is_source(&self) -> bool {
        self.has_extension(&["rs", "sql", "html", "css", "js", "mjs", "ts", "sh", "py"])
            || self.path.ends_with("Makefile")
            || self.path.starts_with(".ci/")
    }

    pub(super) fn is_text(&self) -> bool {
        self.is_source()
            || self.has_extension(&["md", "toml", "yaml", "yml", "json", "env", "service"])
    }

    pub(super) fn has_extension(&self, extensions: &[&str]) -> bool {
        let extension = Path::new(&self.path).extension().and_then(|one| one.to_str());
        extension.is_some_and(|one| extensions.contains(&one))
    }
}

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// All of them, but for what tools put there.
pub(super) fn files() -> Vec<File> {
    let root = root();
    let mut files = Vec::new();
    walk(&root, &root, &mut files);
    assert!(files.len() > 50, "the repository lies at {}", root.display());
    files
}

fn walk(root: &Path, dir: &Path, files: &mut Vec<File>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && !NOT_OURS.iter().any(|one| name == *one) {
            walk(root, &entry.path(), files);
        } else if kind.is_file() {
            let path = entry.path();
            let relative = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            files.push(File { path: relative, full: path });
        }
    }
}
