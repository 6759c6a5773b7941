//! One thread that starts children, for the life of the process.
//!
//! The kernel kills a child when the *thread* that started it ends (prctl(2), `PR_SET_PDEATHSIG`), and
//! threads of a runtime come and go.

use std::{
    fs, io,
    os::unix::process::CommandExt,
    panic::{AssertUnwindSafe, catch_unwind},
    process::Command,
    sync::{OnceLock, mpsc},
    thread,
};

use domain::{Code, Error};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use tokio::{runtime::Handle, sync::oneshot};
use tokio_util::task::TaskTracker;

use super::{
    Held, Work,
    child::{self, Child},
    command::Laid,
};

struct Order {
    laid: Laid,
    held: Held,
    starting: Work,
    tasks: TaskTracker,
    runtime: Handle,
    reply: oneshot::Sender<io::Result<Child>>,
}

/// Starts a child in the present runtime.
pub(super) async fn spawn(
    laid: Laid,
    held: Held,
    starting: Work,
    tasks: TaskTracker,
) -> Result<Child, Error> {
    let (reply, started) = oneshot::channel();
    let order = Order { laid, held, starting, tasks, runtime: Handle::current(), reply };
    let gone = || Error::internal("the thread that starts programs is gone");
    orders()?.send(order).map_err(|_| gone())?;
    started.await.map_err(|_| gone())?.map_err(|error| {
        let (code, words) = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
                (Code::ServerMisconfigured, "the server's program cannot be run")
            }
            _ => (Code::UpstreamUnavailable, "the server's program cannot be started"),
        };
        Error::new(code, words).because(error)
    })
}

fn orders() -> Result<&'static mpsc::Sender<Order>, Error> {
    static ORDERS: OnceLock<io::Result<mpsc::Sender<Order>>> = OnceLock::new();
    let thread = ORDERS.get_or_init(|| {
        let (sender, orders) = mpsc::channel();
        let work = move || orders.into_iter().for_each(obey);
        thread::Builder::new().name("stdio-spawner".to_owned()).spawn(work).map(|_| sender)
    });
    thread.as_ref().map_err(|error| Error::internal(error.to_string()))
}

/// A panic must not end the thread: that would kill every child.
fn obey(order: Order) {
    let Order { laid, held, starting, tasks, runtime, reply } = order;
    let started = catch_unwind(AssertUnwindSafe(|| start(laid, held, starting, &tasks, &runtime)))
        .unwrap_or_else(|_| Err(io::Error::other("starting a program panicked")));
    // A child that nobody waits for any more is dropped here, and thereby ended.
    drop(reply.send(started));
}

fn start(
    laid: Laid,
    held: Held,
    starting: Work,
    tasks: &TaskTracker,
    runtime: &Handle,
) -> io::Result<Child> {
    let Laid { mut command, home, limits, no_new_privileges } = laid;
    bind(&mut command, limits, no_new_privileges);
    let _entered = runtime.enter();
    let mut command = tokio::process::Command::from(command);
    let process = command.kill_on_drop(true).spawn()?;
    if let Some(pid) = process.id() {
        // Under memory pressure the kernel takes a child before us; a hint, so failing is fine.
        let _hint = fs::write(format!("/proc/{pid}/oom_score_adj"), "500");
    }
    child::adopt(process, home, held, starting, tasks, runtime)
}

/// Binds the child to our life and to its limits, between fork and exec.
fn bind(command: &mut Command, limits: Vec<(Resource, Rlimit)>, no_new_privileges: bool) {
    let ours = rustix::process::getpid();
    let bind = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // We may have died before that was said.
        if rustix::process::getppid() != Some(ours) {
            return Err(io::Error::from(rustix::io::Errno::SRCH));
        }
        if no_new_privileges {
            rustix::thread::set_no_new_privs(true)?;
        }
        for (resource, limit) in &limits {
            rustix::process::setrlimit(*resource, *limit)?;
        }
        Ok(())
    };
    #[expect(
        unsafe_code,
        reason = "std has no other way to do something between fork and exec; the closure makes plain \
                  system calls, allocates nothing and takes no lock"
    )]
    // SAFETY: as above; `limits` was allocated before the fork and is only read.
    unsafe {
        command.pre_exec(bind);
    }
}

/// The number of a process as rustix writes it.
pub(super) fn pid(process: &tokio::process::Child) -> io::Result<Pid> {
    process
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
        .ok_or_else(|| io::Error::other("the program was gone at once"))
}
