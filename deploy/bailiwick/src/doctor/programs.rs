//! Whether programs may be run as MCP servers here, and whether they would be shut in.

use std::{fs, os::unix::fs::MetadataExt};

use app::doctor::Finding;
use domain::{
    Error, limits,
    server::stdio::{AllowedProgram, StdioMode},
};
use outbound::stdio::{NoBubblewrap, Stdio};
use runtime::config::Settings;
use tokio::time;
use url::Url;

use crate::assemble;

const WHAT: &str = "programs";
const SANDBOX: &str = "sandbox";

/// Whether any program may run.
pub(super) fn allowed(settings: &Settings) -> bool {
    settings.stdio.as_ref().is_some_and(|mode| !matches!(mode, StdioMode::Off))
}

/// `settings` as the service has them; `servers`: how many are programs, and switched on.
pub(super) async fn look(
    settings: &Settings,
    object_store: Option<&Url>,
    servers: usize,
    findings: &mut Vec<Finding>,
) {
    let mode = match &settings.stdio {
        None | Some(StdioMode::Off) => {
            // Servers that want one anyway are a finding of their own.
            findings.push(Finding::ok(WHAT, "none may be run (BAILIWICK_STDIO is off)"));
            return;
        }
        Some(mode) => mode,
    };
    if let StdioMode::Allowlist(programs) = mode {
        list(programs, servers, findings);
    } else {
        let found = "a superadmin may have any program run on this machine";
        let mend = "set BAILIWICK_STDIO to allowlist, and list the programs";
        findings.push(Finding::warn(WHAT, found, mend));
    }
    // Without a store nothing serves, and nothing is run.
    if let Some(object_store) = object_store {
        let stdio = Stdio::new(assemble::stdio_rules(settings, object_store));
        findings.push(sandbox(&stdio, servers).await);
    }
}

/// Whether what the operator listed is there, and theirs.
fn list(programs: &[AllowedProgram], servers: usize, findings: &mut Vec<Finding>) {
    let before = findings.len();
    for program in programs {
        let (name, command) = (&program.name, &program.command);
        let Ok(found) = fs::metadata(command) else {
            let found = format!("{name}: {command} is not there");
            findings.push(Finding::fail(WHAT, found, "install it, or take it off the list"));
            continue;
        };
        if !found.is_file() || found.mode() & 0o111 == 0 {
            let found = format!("{name}: {command} is no program");
            findings.push(Finding::fail(WHAT, found, "let the entry name an executable file"));
        } else if found.mode() & 0o022 != 0 {
            let found = format!("{name}: others may change {command}, and so what runs");
            findings.push(Finding::warn(WHAT, found, format!("chmod go-w {command}")));
        }
    }
    if findings.len() == before {
        let found = format!("{} on the list; servers that run one: {servers}", programs.len());
        findings.push(Finding::ok(WHAT, found));
    }
}

/// Tries the wall that a child would get.
async fn sandbox(stdio: &Stdio, servers: usize) -> Finding {
    let tried = time::timeout(limits::DOCTOR_LOOK_MS.millis(), async {
        (stdio.sandbox().await, Stdio::without_bubblewrap().await)
    });
    let Ok((tried, missing)) = tried.await else {
        let late = NoBubblewrap::Late;
        return Finding::warn(SANDBOX, late.to_string(), mend(Some(&late)));
    };
    let mend = mend(missing.as_ref());
    let why = missing.map(|why| why.to_string()).unwrap_or_default();
    let refused = |error: Error| {
        // That nothing is run has more reasons than one where the service is root.
        let told = error.public.contains(&why);
        if told { error.public } else { format!("{why}; {}", error.public) }
    };
    match tried {
        Ok("bubblewrap") => Finding::ok(SANDBOX, "bubblewrap works"),
        Ok("account") => {
            Finding::warn(SANDBOX, format!("{why}: children get accounts of their own"), mend)
        }
        Ok(_) => {
            Finding::warn(SANDBOX, "there is none: what the service can read, a child can", mend)
        }
        Err(error) if servers > 0 => Finding::fail(SANDBOX, refused(error), mend),
        Err(error) => Finding::warn(SANDBOX, refused(error), mend),
    }
}

/// What has to be done for bubblewrap to work.
fn mend(missing: Option<&NoBubblewrap>) -> String {
    let first = match missing {
        None => return "set BAILIWICK_STDIO_SANDBOX to strongest".to_owned(),
        Some(NoBubblewrap::NotInstalled) => {
            "install bubblewrap (`apt install bubblewrap`; as root also util-linux)"
        }
        Some(NoBubblewrap::NoSetpriv) => {
            "install setpriv (`apt install util-linux`), by which root gives each child an account"
        }
        Some(NoBubblewrap::Paths(_)) => "let that path lead to a directory of its own",
        Some(NoBubblewrap::Forbidden | NoBubblewrap::NotStarted | NoBubblewrap::Late) => {
            "allow user namespaces (kernel.unprivileged_userns_clone, AppArmor, seccomp of a container)"
        }
    };
    format!(
        "{first}; without bubblewrap children run as accounts of their own where the service is root, \
         else not at all"
    )
}
