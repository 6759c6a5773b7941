//! The private Postgres of `up`, started for real: adopted, crashed, restarted, refused.
#![expect(clippy::unwrap_used, reason = "a test, and what helps it, fails by panicking")]

use std::{
    fs::{self, Permissions},
    io::{BufRead, BufReader},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, User, geteuid},
};
use runtime::{
    lifecycle::Lifecycle,
    postgres::{self, Error, PostgresOptions, PrivatePostgres, locate},
};
use sqlx::{Connection, Executor, PgConnection};
use tokio::time::{self, Instant};

/// A directory of one test. What still serves it in the end is stopped, also when the test fails.
struct Place {
    dir: tempfile::TempDir,
    below: PathBuf,
}

impl Place {
    fn new() -> Self {
        Self::below("postgres")
    }

    fn below(path: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // The server does not run as root and has to pass through.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o711)).unwrap();
        Self { dir, below: path.into() }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join(&self.below)
    }

    fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    async fn start(&self) -> Result<PrivatePostgres, Error> {
        postgres::start(&self.path(), &for_tests()).await
    }

    /// Starts a server from a process of its own, which then waits to be killed.
    async fn start_from_another_process(&self) -> Launcher {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "private_postgres::a_launcher_waits_to_be_killed", "--nocapture"])
            .env(LAUNCH, self.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let launcher = Launcher(child);
        let up = move || stdout.lines().any(|line| line.unwrap().contains("launched"));
        assert!(tokio::task::spawn_blocking(up).await.unwrap(), "the launcher ended");
        launcher
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let note = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        if let Some(pid) = note.lines().next().and_then(|pid| pid.parse().ok())
            && fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name == "postgres\n")
        {
            let _ = kill(Pid::from_raw(pid), Signal::SIGQUIT);
        }
    }
}

struct Launcher(Child);

impl Launcher {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const LAUNCH: &str = "TEST_LAUNCH_POSTGRES_IN";

/// The other process of [`Place::start_from_another_process`]; in a normal run it does nothing.
#[tokio::test]
async fn a_launcher_waits_to_be_killed() {
    let Some(dir) = std::env::var_os(LAUNCH) else { return };
    let _postgres = postgres::start(Path::new(&dir), &for_tests()).await.unwrap();
    println!("launched");
    std::future::pending::<()>().await;
}

fn for_tests() -> PostgresOptions {
    // Not safe against a crash of the machine, but against the crashes that these tests make.
    let extra = vec![("synchronous_commit".to_owned(), "on".to_owned())];
    PostgresOptions { durable: false, max_connections: 20, extra, ..Default::default() }
}

async fn ask(postgres: &PrivatePostgres, question: &'static str) -> String {
    let mut connection = PgConnection::connect(&postgres.admin_url()).await.unwrap();
    let answer = sqlx::query_scalar(question).fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    answer
}

async fn tell(postgres: &PrivatePostgres, statement: &'static str) {
    let mut connection = PgConnection::connect(&postgres.admin_url()).await.unwrap();
    connection.execute(statement).await.unwrap();
    connection.close().await.unwrap();
}

/// Waits for a state that comes soon or never.
async fn until<T>(what: &str, mut state: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        if let Some(reached) = state().await {
            return reached;
        }
        assert!(Instant::now() < deadline, "never: {what}");
        time::sleep(Duration::from_millis(20)).await;
    }
}

fn is_gone(pid: i32) -> bool {
    // A zombie is gone too: it has no command line.
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.is_empty())
        || !Path::new(&format!("/proc/{pid}")).exists()
}

#[tokio::test]
async fn a_fresh_directory_gets_a_server_that_only_its_socket_reaches() {
    let place = Place::new();
    let postgres = place.start().await.unwrap();

    assert_eq!(ask(&postgres, "SHOW listen_addresses").await, "");
    assert_eq!(ask(&postgres, "SHOW server_encoding").await, "UTF8");
    assert_eq!(ask(&postgres, "SHOW fsync").await, "off");
    assert_eq!(ask(&postgres, "SELECT lower('ÄÖ')").await, "äö");
    tell(&postgres, "CREATE EXTENSION hstore").await;
    tell(&postgres, "CREATE EXTENSION pgcrypto").await;

    let socket_dir = fs::metadata(postgres.socket_dir()).unwrap();
    assert_eq!(socket_dir.mode() & 0o777, 0o700);
    let pid = postgres.pid().unwrap();
    assert_ne!(fs::metadata(format!("/proc/{pid}")).unwrap().uid(), 0, "never as root");
    assert_eq!(postgres.address(), &locate(&place.path()).unwrap());
    let url = format!(
        "postgres://bailiwick_app@localhost/bailiwick?host={}",
        postgres.socket_dir().display()
    );
    assert_eq!(postgres.app_url(), url);
    let inherited = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    assert!(!inherited.contains("CARGO"), "our environment stays with us: {inherited:?}");

    postgres.stop().await.unwrap();
    assert!(is_gone(pid));
    assert!(!postgres.address().answers().await);
    assert!(!place.data().join("postmaster.pid").exists(), "a clean end");
}

#[tokio::test]
async fn a_server_left_by_a_killed_launcher_is_adopted_and_can_be_stopped() {
    let place = Place::new();
    let mut launcher = place.start_from_another_process().await;
    let address = locate(&place.path()).unwrap();
    launcher.kill();
    assert!(address.answers().await, "the server outlives its launcher");
    let note = fs::read_to_string(place.data().join("postmaster.pid")).unwrap();
    let left: i32 = note.lines().next().unwrap().parse().unwrap();

    let postgres = place.start().await.unwrap();
    assert_eq!(postgres.pid(), Some(left));
    assert_eq!(ask(&postgres, "SELECT 'here'").await, "here");

    postgres.stop().await.unwrap();
    assert!(is_gone(left));
}

#[tokio::test]
async fn a_server_with_other_settings_is_restarted_instead_of_adopted() {
    let place = Place::new();
    let first = place.start().await.unwrap();
    let pid = first.pid().unwrap();
    drop(first);

    let options = PostgresOptions { max_connections: 21, ..for_tests() };
    let postgres = postgres::start(&place.path(), &options).await.unwrap();
    assert_ne!(postgres.pid(), Some(pid));
    assert_eq!(ask(&postgres, "SHOW max_connections").await, "21");
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_second_launcher_is_refused_while_the_first_lives() {
    let place = Place::new();
    let mut launcher = place.start_from_another_process().await;
    let refused = place.start().await.unwrap_err();
    let Error::Held { holder, .. } = &refused else { panic!("{refused}") };
    assert_eq!(*holder, launcher.0.id().to_string());

    launcher.kill();
    let postgres = place.start().await.unwrap();
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_stale_pid_file_is_survived_whoever_has_its_number_now() {
    let place = Place::new();
    let postgres = place.start().await.unwrap();
    tell(&postgres, "CREATE TABLE kept AS SELECT 'kept'::text AS word").await;
    let pid = postgres.pid().unwrap();
    drop(postgres);
    let note = place.data().join("postmaster.pid");
    let crash = fs::read_to_string(&note).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    until("the first process ends", async || is_gone(pid).then_some(())).await;

    // Its number is nobody's.
    let postgres = place.start().await.unwrap();
    assert_eq!(ask(&postgres, "SELECT word FROM kept").await, "kept");
    postgres.stop().await.unwrap();
    drop(postgres);

    // After a reboot its number is that of another process of the same account, which Postgres
    // itself would take for a running server, in both of its lock files.
    let server = fs::metadata(place.data()).unwrap();
    let mut command = Command::new("sleep");
    command.arg("600").current_dir("/");
    if geteuid().is_root() {
        std::os::unix::process::CommandExt::uid(&mut command, server.uid());
    }
    let mut stranger = Launcher(command.spawn().unwrap());
    let crash = crash.replacen(&pid.to_string(), &stranger.0.id().to_string(), 1);
    fs::write(&note, &crash).unwrap();
    let socket_dir = locate(&place.path()).unwrap().socket_dir().to_owned();
    fs::write(socket_dir.join(".s.PGSQL.5432.lock"), &crash).unwrap();

    let postgres = place.start().await.unwrap();
    assert_eq!(ask(&postgres, "SELECT word FROM kept").await, "kept");
    postgres.stop().await.unwrap();
    assert!(stranger.0.try_wait().unwrap().is_none(), "the stranger was left alone");
}

#[tokio::test]
async fn a_killed_server_is_started_again_also_an_adopted_one() {
    let place = Place::new();
    place.start_from_another_process().await.kill();
    let postgres = place.start().await.unwrap();
    tell(&postgres, "CREATE TABLE kept AS SELECT 'kept'::text AS word").await;
    let lifecycle = Lifecycle::new();
    postgres.supervise(&lifecycle);

    // The first is adopted, the second is a child.
    for _ in 0..2 {
        let pid = postgres.pid().unwrap();
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        let back = async || {
            let other = postgres.pid().is_some_and(|now| now != pid);
            (other && postgres.address().answers().await).then_some(())
        };
        until("the server is back", back).await;
        assert_eq!(ask(&postgres, "SELECT word FROM kept").await, "kept");
    }

    let pid = postgres.pid().unwrap();
    postgres.stop().await.unwrap();
    assert!(is_gone(pid));
    let pause = Instant::now() + Duration::from_millis(800);
    while Instant::now() < pause {
        assert_eq!(postgres.pid(), None, "a stopped server stays stopped");
        time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_server_that_cannot_write_its_checkpoint_is_stopped_all_the_same() {
    let place = Place::new();
    let postgres = place.start().await.unwrap();
    tell(&postgres, "CREATE TABLE kept AS SELECT 'kept'::text AS word").await;
    let pid = postgres.pid().unwrap();
    let checkpointer = "SELECT pid::text FROM pg_stat_activity WHERE backend_type = 'checkpointer'";
    let checkpointer = ask(&postgres, checkpointer).await.parse().unwrap();
    kill(Pid::from_raw(checkpointer), Signal::SIGSTOP).unwrap();
    postgres.stop().await.unwrap();
    assert!(is_gone(pid) && is_gone(checkpointer));
    drop(postgres);

    let postgres = place.start().await.unwrap();
    assert_eq!(ask(&postgres, "SELECT word FROM kept").await, "kept");
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_long_path_with_odd_characters_gets_a_short_socket_directory() {
    let long = format!("with spaces, a comma, a 'quote' and % {}/postgres", "x".repeat(120));
    let place = Place::below(&long);
    let postgres = place.start().await.unwrap();
    let socket_dir = postgres.socket_dir().to_owned();
    assert!(socket_dir.starts_with("/tmp") && socket_dir.as_os_str().len() < 30, "{socket_dir:?}");
    let made = fs::metadata(&socket_dir).unwrap();
    assert_eq!(made.mode() & 0o777, 0o700);
    assert_eq!(made.uid(), fs::metadata(place.data()).unwrap().uid());
    assert_eq!(ask(&postgres, "SELECT 'here'").await, "here");
    assert_eq!(locate(&place.path()).unwrap().socket_dir(), socket_dir);
    postgres.stop().await.unwrap();

    // Somebody else's directory of that name is not used.
    fs::set_permissions(&socket_dir, Permissions::from_mode(0o777)).unwrap();
    if geteuid().is_root() {
        std::os::unix::fs::chown(&socket_dir, Some(12_345), None).unwrap();
        drop(postgres);
        let refused = place.start().await.unwrap_err();
        assert!(matches!(refused, Error::SocketDirectory { .. }), "{refused}");
    }
    fs::remove_dir_all(&socket_dir).unwrap();
}

#[tokio::test]
async fn a_short_path_with_odd_characters_keeps_its_socket() {
    let place = Place::below("a b, 'c' %20&ü");
    let postgres = place.start().await.unwrap();
    assert!(postgres.socket_dir().starts_with(place.path()));
    assert_eq!(ask(&postgres, "SELECT 'here'").await, "here");
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn data_of_another_version_is_refused_by_name() {
    let place = Place::new();
    place.start().await.unwrap().stop().await.unwrap();
    fs::write(place.data().join("PG_VERSION"), "9\n").unwrap();
    let refused = place.start().await.unwrap_err();
    assert!(matches!(refused, Error::OtherVersion { data: 9, .. }), "{refused}");
    assert!(refused.to_string().contains("apt install postgresql-9"), "{refused}");
}

#[tokio::test]
async fn a_directory_without_usable_binaries_is_refused_by_name() {
    let place = Place::new();
    let options = PostgresOptions { binaries: Some("/nowhere/bin".into()), ..for_tests() };
    let refused = postgres::start(&place.path(), &options).await.unwrap_err().to_string();
    assert!(refused.contains("/nowhere/bin") && refused.contains("apt install postgresql"));
}

#[tokio::test]
async fn a_parent_that_the_server_cannot_pass_is_named() {
    if !geteuid().is_root() {
        // Without root there is no other account.
        return;
    }
    let place = Place::below("closed/postgres");
    let closed = place.dir.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
    let refused = place.start().await.unwrap_err();
    let Error::NotSearchable { directory, account } = &refused else { panic!("{refused}") };
    assert_eq!(*directory, closed.canonicalize().unwrap());
    assert!(User::from_name(account).unwrap().is_some_and(|user| !user.uid.is_root()));
}
