//! What stands on this machine: settings, the data directory, the disks.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use app::doctor::Finding;
use domain::limits;
use nix::{sys::statvfs::statvfs, unistd::geteuid};
use runtime::config::{Reading, Settings};

use crate::installation::{self, Installation};

pub(super) const SETTINGS: &str = "settings";
pub(super) const SEAL_KEY: &str = "seal key";
pub(super) const TOKENS: &str = "token files";
const DATA_DIR: &str = "data directory";
const FILES: &str = "file modes";
const DISK: &str = "disk space";

/// Whether each is what it should be, alone and together.
pub(super) fn settings(reading: &Reading) -> Vec<Finding> {
    let mut findings = Vec::new();
    for mistake in &reading.mistakes.0 {
        let found = format!("{} (from {}): {}", mistake.setting, mistake.source, mistake.problem);
        let mend = "mend it there; `bailiwick up --help` says what each setting may be";
        findings.push(Finding::fail(SETTINGS, found, mend));
    }
    let is_set = |name: &str| reading.set.iter().any(|(known, _)| known == name);
    if is_set("data_dir") && is_set("database_url") {
        let found =
            "data_dir and database_url are both set: `up` refuses that, and commands take data_dir";
        findings.push(Finding::warn(SETTINGS, found, "keep the one that you mean"));
    }
    for network in &reading.settings.trusted_proxies {
        if network.prefix_len() < 8 {
            let found = format!("trusted_proxies holds {network}: anybody may say who asks");
            let mend = "list the addresses of your reverse proxies alone";
            findings.push(Finding::warn(SETTINGS, found, mend));
        }
    }
    for path in &reading.files {
        if is_open(path) {
            let found = format!("{} can be read by others, and may hold a secret", path.display());
            let mend = format!("chmod 600 {}", path.display());
            findings.push(Finding::warn(SETTINGS, found, mend));
        }
    }
    if findings.is_empty() {
        let names: Vec<&str> = reading.set.iter().map(|(name, _)| name.as_str()).collect();
        let found = match names.as_slice() {
            [] => "all at their defaults".to_owned(),
            names => format!("usable; set: {}", names.join(", ")),
        };
        findings.push(Finding::ok(SETTINGS, found));
    }
    findings
}

/// Whether there is an installation of `up`; what its files are.
pub(super) fn installation(
    settings: &Settings,
    installation: &Installation,
    findings: &mut Vec<Finding>,
) -> bool {
    let dir = installation.dir();
    let shown = dir.display();
    let Ok(found) = fs::metadata(dir) else {
        let mend = "name the right --data-dir or BAILIWICK_DATABASE_URL, or make an installation: \
                    `bailiwick up`";
        findings.push(Finding::fail(DATA_DIR, format!("no installation in {shown}"), mend));
        return false;
    };
    // Root's is passed through by the account of its Postgres.
    let wanted = if found.uid() == 0 { 0o711 } else { 0o700 };
    let mode = found.mode() & 0o777;
    findings.push(if !found.is_dir() {
        Finding::fail(DATA_DIR, format!("{shown} is no directory"), "name another --data-dir")
    } else if mode & !wanted != 0 {
        let found = format!("{shown} has mode {mode:o}: others can see what is in it");
        Finding::fail(DATA_DIR, found, format!("chmod {wanted:o} {shown}"))
    } else if !installation.is_installed() {
        let found = format!("{shown}: its first start was not completed");
        Finding::warn(
            DATA_DIR,
            found,
            format!("start `bailiwick up --data-dir {shown}`: it goes on there"),
        )
    } else if found.uid() != geteuid().as_raw() && !geteuid().is_root() {
        let found = format!("{shown} belongs to another account: not everything can be looked at");
        Finding::warn(DATA_DIR, found, "run this as the account that runs `up`, or as root")
    } else {
        Finding::ok(DATA_DIR, shown.to_string())
    });
    if !found.is_dir() {
        return false;
    }
    files(settings, installation, findings);
    true
}

/// The files that the first start made.
fn files(settings: &Settings, installation: &Installation, findings: &mut Vec<Finding>) {
    let path = |name: &str| installation.dir().join(name);
    let restore = "put it back from your backup: a new one cannot take its place";
    if settings.seal_key.is_none() {
        let seal_key = path(installation::SEAL_KEY);
        findings.push(match fs::metadata(&seal_key) {
            Err(_) => Finding::fail(SEAL_KEY, "the file seal-key is gone", restore),
            Ok(_) if is_open(&seal_key) => {
                let mend = format!("chmod 600 {}", seal_key.display());
                Finding::fail(SEAL_KEY, "others can read the file seal-key", mend)
            }
            Ok(_) => Finding::ok(SEAL_KEY, "there, closed to others"),
        });
    }
    let mut made =
        vec![installation::ADMIN_PASSWORD, installation::ADMIN_TOKEN, installation::AGENT_TOKEN];
    if settings.encryption_keys.is_none() {
        made.push(installation::ENCRYPTION_KEYS);
    }
    let open: Vec<PathBuf> =
        made.iter().map(|name| path(name)).filter(|path| is_open(path)).collect();
    for path in &open {
        let found = format!("others can read {}", path.display());
        let mend = format!("chmod 600 {}, and replace what stood in it", path.display());
        findings.push(Finding::fail(FILES, found, mend));
    }
    if open.is_empty() {
        findings.push(Finding::ok(FILES, "keys, tokens and password are closed to others"));
    }
    let token_files = [installation::ADMIN_TOKEN, installation::AGENT_TOKEN];
    let gone: Vec<&str> = token_files.into_iter().filter(|name| !path(name).exists()).collect();
    if !gone.is_empty() {
        let found =
            format!("missing: {}; `call` and scripts take them from there", gone.join(", "));
        let mend = "make a token with `bailiwick token create`, and write it there with mode 0600";
        findings.push(Finding::warn(TOKENS, found, mend));
    }
}

/// Somebody beside the owner may read or write it.
fn is_open(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.mode() & 0o077 != 0)
}

/// How much room is left below these directories.
pub(super) fn disks(directories: &[PathBuf], findings: &mut Vec<Finding>) {
    let mut seen = Vec::new();
    for directory in directories {
        let Ok(disk) = statvfs(directory) else { continue };
        // Two directories of one disk are one finding.
        if seen.contains(&disk.filesystem_id()) {
            continue;
        }
        seen.push(disk.filesystem_id());
        let free = disk.blocks_available().saturating_mul(disk.fragment_size());
        let (least, shown) = (limits::DISK_FREE_BYTES.default, directory.display());
        let found = format!("{} MB free at {shown}", free / 1_000_000);
        let mend = "free or add space: PostgreSQL stops on a full disk";
        findings.push(if free < least / 10 {
            Finding::fail(DISK, found, mend)
        } else if free < least {
            Finding::warn(DISK, found, mend)
        } else {
            Finding::ok(DISK, found)
        });
    }
}
