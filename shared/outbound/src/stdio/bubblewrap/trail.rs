//! Where a path leads, and over which links.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fs, io,
    path::{Component, Path, PathBuf},
};

/// As the kernel has it (`path_resolution(7)`).
const MOST_LINKS: usize = 40;

/// A path that exists, followed to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trail {
    /// Without a link.
    pub(super) end: PathBuf,
    /// Each link on the way, by its own path without a link, and what stands in it.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
}

impl Trail {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let mut links = Vec::new();
        let mut end = PathBuf::from("/");
        let mut left: VecDeque<OsString> = steps(path).collect();
        while let Some(step) = left.pop_front() {
            if step == ".." {
                end.pop();
                continue;
            }
            end.push(step);
            if !fs::symlink_metadata(&end)?.is_symlink() {
                continue;
            }
            let target = fs::read_link(&end)?;
            links.push((end.clone(), target.clone()));
            if links.len() > MOST_LINKS {
                return Err(rustix::io::Errno::LOOP.into());
            }
            end = if target.is_absolute() { PathBuf::from("/") } else { parent(end) };
            for step in steps(&target).rev() {
                left.push_front(step);
            }
        }
        Ok(Self { end, links })
    }
}

fn parent(mut path: PathBuf) -> PathBuf {
    path.pop();
    path
}

fn steps(path: &Path) -> impl DoubleEndedIterator<Item = OsString> + '_ {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_as_the_kernel_does_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        fs::create_dir_all(dir.join("real/deep")).unwrap();
        symlink(dir.join("real"), dir.join("absolute")).unwrap();
        symlink("../absolute/deep", dir.join("real/relative")).unwrap();
        symlink("loop", dir.join("loop")).unwrap();

        let trail = Trail::of(&dir.join("absolute/relative/../deep")).unwrap();
        assert_eq!(trail.end, dir.join("real/deep"));
        let links: Vec<_> = trail.links.iter().map(|(link, _)| link.clone()).collect();
        assert_eq!(links, [dir.join("absolute"), dir.join("real/relative"), dir.join("absolute")]);
        assert_eq!(trail.end, dir.join("absolute/relative").canonicalize().unwrap());
        assert!(Trail::of(&dir.join("loop")).is_err());
        let error = Trail::of(&dir.join("nothing")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
