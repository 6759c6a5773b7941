//! Programs on our host that speak on their standard input and output (design: connections, "stdio").
//!
//! **Invariant:** no program is started but here, and none runs without a sandbox unless the operator
//! said so by name. A child is killed with everything that it started: when its [`Child`] is dropped,
//! at any moment of its life, and by the kernel when this process dies.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use domain::{
    Code, Error, limits,
    server::stdio::{AllowedProgram, Asked, StdioMode},
};
use serde_json::json;
use tokio::sync::OnceCell;
use tokio_util::task::TaskTracker;

use crate::mcp::Program;

mod account;
mod bubblewrap;
mod child;
mod command;
mod places;
mod spawner;
mod stderr;

pub(crate) use child::{Child, Life, Watch, ending};
pub(crate) use places::{Holder, Work};

pub use bubblewrap::NoBubblewrap;

use account::{Account, Accounts};
use bubblewrap::Bubblewrap;
use command::Surroundings;
use places::{Place, Places};

/// What the operator permits, and behind which wall.
#[derive(Debug, Clone, Default)]
pub struct StdioRules {
    pub mode: StdioMode,
    pub sandbox: Sandbox,
    /// Directories and files that no child may see: the data directory, configuration with secrets,
    /// sockets. Under bubblewrap they are empty; otherwise they must be closed to others, or nothing
    /// is started.
    pub hidden_paths: Vec<PathBuf>,
    /// Under bubblewrap `/home`, `/root`, `/run`, `/tmp` and `/var/tmp` are hidden too; what is listed
    /// here of them can be read.
    pub readable_paths: Vec<PathBuf>,
}

/// What keeps a child from the rest of the host. The network stays in each: servers need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sandbox {
    /// Bubblewrap where it works here, else other accounts where this process is root, else nothing
    /// is started.
    #[default]
    Strongest,
    /// A read-only root with private `/tmp` and home, own process ids, no privileges; where this
    /// process is root, an account of its own as well.
    Bubblewrap,
    /// An account of its own for each child: `uid` and as many after it as there are children, all
    /// with `gid`. Only root can do that.
    Account { uid: u32, gid: u32 },
    /// Nothing but limits and a process group of its own. Whatever this process can read, a child can.
    None,
}

/// Starts programs. Cheap to clone; the number of children is counted over all clones.
#[derive(Debug, Clone)]
pub struct Stdio(Arc<Host>);

#[derive(Debug)]
struct Host {
    rules: StdioRules,
    wall: OnceCell<Wall>,
    places: Places,
    accounts: Accounts,
}

/// The sandbox that was found to work.
#[derive(Debug)]
enum Wall {
    Bubblewrap(Bubblewrap),
    Account,
    None,
}

impl Stdio {
    #[must_use]
    pub fn new(rules: StdioRules) -> Self {
        let accounts = match rules.sandbox {
            Sandbox::Account { uid, gid } => Accounts::new(uid, gid),
            _ => Accounts::default(),
        };
        Self(Arc::new(Host { rules, wall: OnceCell::new(), places: Places::new(), accounts }))
    }

    /// No program runs.
    #[must_use]
    pub fn off() -> Self {
        Self::new(StdioRules::default())
    }

    #[must_use]
    pub fn rules(&self) -> &StdioRules {
        &self.0.rules
    }

    /// Tries, once, which sandbox works here, and gives its name: `bubblewrap`, `account` or `none`.
    /// `SERVER_MISCONFIGURED` where the one that the rules ask for does not.
    pub async fn sandbox(&self) -> Result<&'static str, Error> {
        Ok(match self.wall().await? {
            Wall::Bubblewrap(_) => "bubblewrap",
            Wall::Account => "account",
            Wall::None => "none",
        })
    }

    /// Why bubblewrap does not work here; `None` where it does.
    pub async fn without_bubblewrap() -> Option<NoBubblewrap> {
        Bubblewrap::find().await.err()
    }

    /// Starts a program for `holder`; its end is seen to by a task of `tasks`. Cancel-safe: a program
    /// that nobody waits for any more is ended. Where no place is free, one is made ([`Places::take`]).
    ///
    /// `SERVER_MISCONFIGURED` where the rules refuse it, it is not there, or no sandbox works;
    /// `UPSTREAM_UNAVAILABLE` or `RATE_LIMIT_QUEUE_FULL` where too many run, `UPSTREAM_UNAVAILABLE`
    /// where the kernel refuses another.
    pub(crate) async fn start(
        &self,
        program: &Program,
        holder: Holder,
        tasks: &TaskTracker,
    ) -> Result<Child, Error> {
        let host = &self.0;
        let allowed = permitted(&host.rules.mode, program)?;
        let around = Surroundings {
            cwd: program.cwd.clone().or_else(|| allowed.as_ref()?.cwd.as_ref().map(PathBuf::from)),
            writable: allowed
                .map_or_else(Vec::new, |entry| entry.writable.iter().map(PathBuf::from).collect()),
            rules: &host.rules,
        };
        // Nobody gives way to what cannot be run.
        around.must_exist(&program.command)?;
        let wall = self.wall().await?;
        let (place, starting) = host.places.take(holder).await?;
        let account = match wall {
            Wall::Bubblewrap(bubblewrap) if !bubblewrap.changes_account() => None,
            Wall::Bubblewrap(_) | Wall::Account => Some(host.accounts.take()?),
            Wall::None => None,
        };
        let laid = match wall {
            Wall::Bubblewrap(bubblewrap) => bubblewrap.lay(program, &around, account.as_ref())?,
            Wall::Account | Wall::None => command::bare(program, &around, account.as_ref())?,
        };
        let held = Held { _account: account, place };
        spawner::spawn(laid, held, starting, tasks.clone()).await
    }

    async fn wall(&self) -> Result<&Wall, Error> {
        self.0.wall.get_or_try_init(|| find(&self.0.rules)).await
    }
}

/// What a child holds of its host while it lives. In this order: whoever is left of an account is
/// ended before another may take its place.
#[derive(Debug)]
struct Held {
    _account: Option<Account>,
    place: Place,
}

/// Marks words about programs that are ours, and that whoever set the server up should read.
pub(crate) fn ours(error: Error) -> Error {
    error.with_details(json!({ "reason": OURS }))
}

/// A program that was started and did not answer its first request.
pub(crate) fn silent() -> Error {
    let words = format!(
        "the server's program was started but did not answer within {} s: it may still be downloading \
         what it runs (install that on the host), wait for a sign-in, or be no MCP server with these \
         arguments; run its command line on the host to see what it says",
        limits::STDIO_START_MS.millis().as_secs()
    );
    ours(Error::new(Code::Timeout, words))
}

/// Whether an error tells, in our words, what is the matter with a server's program: that it does not
/// answer, or that there was no place for it.
#[must_use]
pub fn is_about_program(error: &Error) -> bool {
    let reason = error.details.as_ref().and_then(|details| details.get("reason")?.as_str());
    reason == Some(OURS)
}

const OURS: &str = "program";

async fn find(rules: &StdioRules) -> Result<Wall, Error> {
    let root = rustix::process::geteuid().is_root();
    let closed = |wall: Wall| must_be_closed(&rules.hidden_paths).map(|()| wall);
    match rules.sandbox {
        Sandbox::None => Ok(Wall::None),
        Sandbox::Account { .. } if root => closed(Wall::Account),
        Sandbox::Account { .. } => {
            Err(refused("the sandbox `account` needs root, which this process is not"))
        }
        Sandbox::Bubblewrap => {
            Bubblewrap::find().await.map(Wall::Bubblewrap).map_err(|why| refused(&why.to_string()))
        }
        Sandbox::Strongest => match Bubblewrap::find().await {
            Ok(bubblewrap) => Ok(Wall::Bubblewrap(bubblewrap)),
            Err(why) if root => {
                tracing::warn!("stdio servers run under other accounts only: {why}");
                closed(Wall::Account)
            }
            Err(why) => {
                let words = format!(
                    "{why}, and this process is not root; install bubblewrap, or name the sandbox \
                     `none` to run programs without one"
                );
                Err(refused(&words))
            }
        },
    }
}

fn refused(why: &str) -> Error {
    Error::new(Code::ServerMisconfigured, format!("no program may be run here: {why}"))
}

/// Another account must not be able to read what is to be hidden.
fn must_be_closed(paths: &[PathBuf]) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt;
    let open_to_others = |path: &Path, bits: u32| {
        fs::metadata(path).is_ok_and(|found| found.permissions().mode() & bits != 0)
    };
    for path in paths {
        let Ok(path) = fs::canonicalize(path) else { continue };
        let reached = path.ancestors().skip(1).all(|above| open_to_others(above, 0o001));
        if reached && open_to_others(&path, 0o007) {
            return Err(refused("a path that is to be hidden can be read by other accounts"));
        }
    }
    Ok(())
}

fn permitted<'a>(
    mode: &'a StdioMode,
    program: &Program,
) -> Result<Option<&'a AllowedProgram>, Error> {
    let text = |path: &Path| {
        path.to_str().map(ToOwned::to_owned).ok_or_else(|| {
            Error::new(Code::ServerMisconfigured, "the server's command is not text")
        })
    };
    let (command, cwd) =
        (text(&program.command)?, text(program.cwd.as_deref().unwrap_or(Path::new("")))?);
    let env: Vec<&str> = program.env.iter().map(|(name, _)| name.as_str()).collect();
    let has_nul = |value: &str| OsStr::new(value).as_encoded_bytes().contains(&0);
    if program.env.iter().any(|(_, value)| has_nul(secrecy::ExposeSecret::expose_secret(value))) {
        let words = "a variable of the server's program holds a NUL";
        return Err(Error::new(Code::ServerMisconfigured, words));
    }
    mode.require(&Asked { command: &command, args: &program.args, cwd: &cwd, env: &env })
}
