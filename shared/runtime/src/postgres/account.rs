//! Whose process the server is, and the directories it needs.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown},
    path::{Path, PathBuf},
    process::Stdio,
};

use nix::unistd::{Gid, Uid, User, getegid, geteuid};
use tokio::process::Command;

use super::error::{Error, While};

/// The account that runs the server.
#[derive(Debug, Clone)]
pub(super) struct Account {
    pub(super) uid: Uid,
    gid: Gid,
    name: String,
    /// We are root, and have to hand things over.
    switch: bool,
}

/// Makes `dir`, and what is missing above it, as the home of an installation: closed to others,
/// but for root open to be passed through, since the private Postgres below it does not run as
/// root. Files in it must be closed themselves.
pub fn create_data_dir(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let mode = if geteuid().is_root() { 0o711 } else { 0o700 };
    fs::set_permissions(dir, Permissions::from_mode(mode))
}

/// Makes a directory that only `account` and root can enter, or makes an existing one so.
pub(super) fn private_dir(dir: &Path, account: &Account) -> Result<(), Error> {
    let what = || format!("making {}", dir.display());
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => account.own(dir),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // A link must not make us close another directory.
            let found = fs::symlink_metadata(dir).during(what)?;
            if found.is_dir() && found.uid() == account.uid.as_raw() {
                fs::set_permissions(dir, Permissions::from_mode(0o700)).during(what)
            } else {
                let uid = account.uid.as_raw();
                Err(Error::SocketDirectory { directory: dir.to_owned(), uid })
            }
        }
        Err(error) => Err(error).during(what),
    }
}

/// A path in `base` for something unfinished, which no earlier launcher has used: its `initdb` or
/// pip may outlive a killed launcher and still write, or clean up behind itself. What it left is
/// removed, or the next time.
pub(super) fn scratch(base: &Path, name: &str) -> PathBuf {
    let (start, end) = (format!("{name}."), ".tmp");
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let file_name = entry.file_name();
        if file_name.to_str().is_some_and(|name| name.starts_with(&start) && name.ends_with(end)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    base.join(format!("{start}{}{end}", std::process::id()))
}

impl Account {
    /// Our own account unless that is root; then the owner of an existing cluster in `data`, else
    /// `postgres`, else `nobody`.
    pub(super) fn choose(data: &Path) -> Result<Self, Error> {
        if !geteuid().is_root() {
            let (uid, gid) = (geteuid(), getegid());
            return Ok(Self { uid, gid, name: uid.to_string(), switch: false });
        }
        if let Ok(cluster) = fs::metadata(data) {
            if cluster.uid() == 0 {
                return Err(Error::OwnedByRoot { data: data.to_owned() });
            }
            let (uid, gid) = (Uid::from_raw(cluster.uid()), Gid::from_raw(cluster.gid()));
            let user = User::from_uid(uid).ok().flatten();
            let name = user.map_or_else(|| uid.to_string(), |user| user.name);
            return Ok(Self { uid, gid, name, switch: true });
        }
        let user = ["postgres", "nobody"]
            .into_iter()
            .find_map(|name| {
                User::from_name(name).ok().flatten().filter(|user| !user.uid.is_root())
            })
            .ok_or(Error::NoAccount)?;
        Ok(Self { uid: user.uid, gid: user.gid, name: user.name, switch: true })
    }

    /// A command of this account, without our environment: that holds secrets, and `PG…`
    /// variables would change what the server does.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LC_ALL", "C")
            .current_dir("/")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        if self.switch {
            // As root, `uid` also drops the supplementary groups.
            command.uid(self.uid.as_raw()).gid(self.gid.as_raw());
        }
        command
    }

    /// Hands `path` over to this account.
    pub(super) fn own(&self, path: &Path) -> Result<(), Error> {
        if !self.switch {
            return Ok(());
        }
        lchown(path, Some(self.uid.as_raw()), Some(self.gid.as_raw()))
            .during(|| format!("giving {} to {}", path.display(), self.name))
    }

    /// Makes the directory that holds everything of the server. As root it stays root's, so that
    /// the server's account cannot plant links where root writes; it may only pass through.
    pub(super) fn base_dir(dir: &Path) -> Result<PathBuf, Error> {
        let what = || format!("making {}", dir.display());
        create_data_dir(dir).during(what)?;
        dir.canonicalize().during(what)
    }

    /// Fails if this account cannot pass through `dir` and everything above it, by trying.
    pub(super) async fn check_reach(&self, dir: &Path) -> Result<(), Error> {
        if !self.switch {
            return Ok(());
        }
        // The working directory is entered after the account was changed.
        let tried = self.command(Path::new("/bin/true")).current_dir(dir).output().await;
        match tried {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let from_the_top = dir.ancestors().collect::<Vec<_>>().into_iter().rev();
                let closed = from_the_top.into_iter().find(|above| !self.may_search(above));
                let directory = closed.unwrap_or(dir).to_owned();
                Err(Error::NotSearchable { directory, account: self.name.clone() })
            }
            tried => tried.map(|_| ()).during(|| format!("entering {}", dir.display())),
        }
    }

    /// By the mode bits alone: only to name the culprit once the attempt has failed.
    fn may_search(&self, dir: &Path) -> bool {
        fs::metadata(dir).is_ok_and(|dir| {
            let bit = if dir.uid() == self.uid.as_raw() {
                0o100
            } else if dir.gid() == self.gid.as_raw() {
                0o010
            } else {
                0o001
            };
            dir.mode() & bit != 0
        })
    }
}
