//! What a child sees of the host's files.
//!
//! bubblewrap covers places, and a link is none: each path is followed to its end first, and that is
//! covered. Names that lead to something readable over a link which is covered itself get that link back.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use domain::{Code, Error, limits, server::stdio::StdioMode};

use super::{StdioRules, misconfigured, trail::Trail};

pub(super) const HOME: &str = "/tmp/home";

/// What is covered on every host.
#[derive(Debug, Clone)]
pub(super) struct Tops {
    /// Other people's files, sockets of services, and what passes through on its way.
    pub(super) hidden: Vec<PathBuf>,
    /// Private and writable instead.
    pub(super) scratch: Vec<PathBuf>,
}

impl Default for Tops {
    fn default() -> Self {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect();
        Self { hidden: paths(&["/root", "/home", "/run"]), scratch: paths(&["/tmp", "/var/tmp"]) }
    }
}

/// All paths without a link.
#[derive(Debug)]
pub(super) struct View {
    /// From the outside in, so that each covers a part of those before.
    mounts: Vec<(PathBuf, Mount)>,
    /// Links that stand where all is covered, and what stands in them.
    links: Vec<(PathBuf, PathBuf)>,
    /// No child may see these, whatever else is said; none lies in another.
    hidden: Vec<PathBuf>,
    home: PathBuf,
}

/// What stands at a path; at the same one the later wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mount {
    Nothing,
    Scratch,
    Readable,
    Writable,
}

impl View {
    /// `ways`: paths that a child is given besides.
    ///
    /// `SERVER_MISCONFIGURED` for a path that cannot be followed, that would cover all there is, or that
    /// leads over a link which programs can change.
    pub(super) fn of<'a>(
        tops: &Tops,
        rules: &StdioRules,
        writable: &[PathBuf],
        ways: impl IntoIterator<Item = &'a Path>,
    ) -> Result<Self, Error> {
        let (away, scratch) = (followed(&tops.hidden)?, followed(&tops.scratch)?);
        let secret = followed(&rules.hidden_paths)?;
        for (name, trail) in away.iter().chain(&scratch).chain(&secret) {
            if trail.end.parent().is_none() {
                let words = format!("{} leads to /, which cannot be hidden", name.display());
                return Err(misconfigured(&words));
            }
        }
        let (readable, writable) = (followed(&rules.readable_paths)?, followed(writable)?);
        stay_as_they_are(rules, &readable, &writable, &secret)?;
        let changed = ends(&writable);
        let mut mounts = Vec::new();
        for (list, mount) in [
            (ends(&away), Mount::Nothing),
            (ends(&scratch), Mount::Scratch),
            // What may be changed may be changed as a whole.
            (
                ends(&readable).into_iter().filter(|path| !is_under(path, &changed)).collect(),
                Mount::Readable,
            ),
            (changed, Mount::Writable),
        ] {
            mounts.extend(list.into_iter().map(|path| (path, mount)));
        }
        mounts.sort();
        mounts.dedup();
        let hidden = outermost(ends(&secret));
        let home = ends(&scratch).first().map_or(HOME.into(), |scratch| scratch.join("home"));
        let mut view = Self { mounts, links: Vec::new(), hidden, home };
        let ways: Vec<PathBuf> = ways.into_iter().map(Path::to_owned).collect();
        let named = readable.into_iter().chain(writable).chain(followed(&ways)?);
        let links: BTreeSet<_> = named.flat_map(|(_, trail)| trail.links).collect();
        let is_covered = |link: &Path| {
            !is_under(link, &view.hidden)
                && view.mount_at(link).is_some_and(|mount| mount < Mount::Readable)
        };
        view.links = links.into_iter().filter(|(link, _)| is_covered(link)).collect();
        Ok(view)
    }

    /// Whether a child will find it.
    pub(super) fn shows(&self, path: &Path) -> bool {
        Trail::of(path).is_ok_and(|trail| self.shows_place(&trail.end))
    }

    /// The same of a path without a link.
    fn shows_place(&self, path: &Path) -> bool {
        let shown = self.mount_at(path).is_none_or(|mount| mount >= Mount::Readable);
        shown && !is_under(path, &self.hidden)
    }

    fn mount_at(&self, path: &Path) -> Option<Mount> {
        self.mounts.iter().rfind(|(top, _)| path.starts_with(top)).map(|(_, mount)| *mount)
    }

    /// Where the private home is made.
    pub(super) fn home(&self) -> &Path {
        &self.home
    }

    pub(super) fn write(&self, line: &mut Line) {
        let size = limits::STDIO_SCRATCH_BYTES.default.to_string();
        for (path, mount) in &self.mounts {
            match mount {
                Mount::Nothing => line.at("--tmpfs", path),
                Mount::Scratch => {
                    line.add(["--size", &size, "--perms", "1777"]);
                    line.at("--tmpfs", path);
                }
                Mount::Readable => {
                    self.way_to(line, path);
                    line.bind("--ro-bind", path);
                }
                Mount::Writable => {
                    self.way_to(line, path);
                    line.bind("--bind", path);
                }
            }
        }
        let names = fs::canonicalize("/etc/resolv.conf").ok();
        for names in names.iter().filter(|names| !self.shows_place(names)) {
            line.bind("--ro-bind", names);
        }
        for (link, target) in &self.links {
            self.way_to(line, link);
            line.add(["--symlink".as_ref(), target.as_os_str(), link.as_os_str()]);
        }
        for path in &self.hidden {
            if path.is_dir() {
                line.at("--tmpfs", path);
                line.at("--remount-ro", path);
            } else {
                line.add(["--ro-bind".as_ref(), "/dev/null".as_ref(), path.as_os_str()]);
            }
        }
        for (path, _) in self.mounts.iter().filter(|(_, mount)| *mount == Mount::Nothing) {
            if self.mount_at(path) == Some(Mount::Nothing) {
                line.at("--remount-ro", path);
            }
        }
    }

    /// Makes the directories above a path that stands where all is covered: bubblewrap would close them
    /// to other accounts.
    fn way_to(&self, line: &mut Line, path: &Path) {
        let above = self.mounts.iter().rfind(|(top, _)| path != top && path.starts_with(top));
        let Some((top, Mount::Nothing | Mount::Scratch)) = above else { return };
        let between: Vec<&Path> =
            path.ancestors().skip(1).take_while(|above| above != top).collect();
        for directory in between.into_iter().rev() {
            line.add(["--perms", "0755", "--dir"]);
            line.add([directory]);
        }
    }
}

/// Refuses a path that leads over a link which programs can change: they would choose what they see. And what
/// is hidden below a directory that they can rename: the next program would not find it to be covered.
fn stay_as_they_are(
    rules: &StdioRules,
    readable: &[(PathBuf, Trail)],
    writable: &[(PathBuf, Trail)],
    secret: &[(PathBuf, Trail)],
) -> Result<(), Error> {
    let mut changeable = ends(writable);
    changeable.extend(ends(&followed(&every_writable(rules))?));
    for (name, trail) in readable.iter().chain(writable) {
        if let Some((link, _)) = trail.links.iter().find(|(link, _)| is_under(link, &changeable)) {
            let (name, link) = (name.display(), link.display());
            let words = format!("{name} leads over the link {link}, which programs can change");
            return Err(misconfigured(&words));
        }
    }
    for (name, trail) in secret {
        let parent = trail.end.parent();
        // What is covered itself is a mount, and cannot be renamed.
        let below = |top: &&PathBuf| parent != Some(top) && trail.end.starts_with(top);
        if let Some(top) = changeable.iter().find(below).filter(|top| trail.end != **top) {
            let (name, top) = (name.display(), top.display());
            let words =
                format!("{name} is to be hidden and lies below {top}, which programs can change");
            return Err(misconfigured(&words));
        }
    }
    Ok(())
}

/// Arguments of bubblewrap.
#[derive(Debug, Default)]
pub(super) struct Line(pub(super) Vec<OsString>);

impl Line {
    pub(super) fn add<A: Into<OsString>>(&mut self, arguments: impl IntoIterator<Item = A>) {
        self.0.extend(arguments.into_iter().map(Into::into));
    }

    fn at(&mut self, how: &str, path: &Path) {
        self.add([how.as_ref(), path.as_os_str()]);
    }

    fn bind(&mut self, how: &str, path: &Path) {
        self.add([OsString::from(how), path.into(), path.into()]);
    }
}

/// Each that exists. One that cannot be followed is refused: what is not known cannot be covered.
fn followed(paths: &[PathBuf]) -> Result<Vec<(PathBuf, Trail)>, Error> {
    let mut found = Vec::new();
    for path in paths {
        match Trail::of(path) {
            Ok(trail) => found.push((path.clone(), trail)),
            Err(error) if is_nothing(&error) => {}
            Err(error) => {
                let words = format!("{} cannot be followed to where it leads", path.display());
                return Err(Error::new(Code::ServerMisconfigured, words).because(error));
            }
        }
    }
    Ok(found)
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn ends(followed: &[(PathBuf, Trail)]) -> Vec<PathBuf> {
    followed.iter().map(|(_, trail)| trail.end.clone()).collect()
}

/// What lies below a hidden directory is hidden with it, and cannot be hidden once more.
fn outermost(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort();
    paths.dedup();
    let all = paths.clone();
    paths.retain(|path| !all.iter().any(|above| path != above && path.starts_with(above)));
    paths
}

fn is_under(path: &Path, tops: &[PathBuf]) -> bool {
    tops.iter().any(|top| path.starts_with(top))
}

/// What any program of the list may change.
fn every_writable(rules: &StdioRules) -> Vec<PathBuf> {
    match &rules.mode {
        StdioMode::Allowlist(programs) => {
            programs.iter().flat_map(|program| &program.writable).map(PathBuf::from).collect()
        }
        StdioMode::Off | StdioMode::Any => Vec::new(),
    }
}
