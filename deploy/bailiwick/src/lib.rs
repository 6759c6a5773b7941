//! The one program, `bailiwick`: serve, operate, use. It puts the layers together and holds no rule.

mod assemble;
mod call;
mod cli;
mod connect;
mod doctor;
mod failure;
mod installation;
mod keys;
mod operate;
mod serve;
mod up;
mod why;

use std::{io::Write, process::ExitCode};

use clap::FromArgMatches;
use runtime::config::{self, Reading, Settings};

use cli::{Cli, Command};
use failure::Failure;

/// Runs the command that the arguments name.
///
/// Exit code 0: done. 1: refused or failed, with the reason on stderr. 2: the arguments or settings are
/// not usable.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::from_arg_matches(&cli::command().get_matches()) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let reading = config::read(&cli.settings, config::environment());
    let outcome = match cli.command {
        Command::Completions { shell } => completions(shell),
        command => run(command, reading),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            eprint!("{failure}");
            failure.exit_code()
        }
    }
}

/// What a command line is made of.
pub type CommandLine = clap::Command;

/// The command line itself, for tests that hold documents against it.
#[must_use]
pub fn command() -> CommandLine {
    cli::command()
}

fn completions(shell: clap_complete::Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli::command(), "bailiwick", &mut script);
    // Whoever reads it may end early.
    std::io::stdout()
        .write_all(&script)
        .map_err(|error| Failure::because("the script cannot be written", error))?;
    Ok(ExitCode::SUCCESS)
}

fn run(command: Command, reading: Reading) -> Result<ExitCode, Failure> {
    let looks = matches!(command, Command::Doctor(_));
    if !looks && !reading.mistakes.0.is_empty() {
        return Err(reading.mistakes.into());
    }
    let settings = &reading.settings;
    // Libraries that bring no provider of their own take this one; a second call changes nothing.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    runtime::telemetry::init(settings.log_format, command.log_filter(settings))
        .map_err(|error| Failure::because("the log cannot be set up", error))?;
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| Failure::because("the runtime cannot be started", error))?;
    let outcome = runtime.block_on(async {
        match command {
            Command::Doctor(output) => doctor::run(&reading, &output).await,
            command => dispatch(command, settings).await,
        }
    });
    // What outlived its time is not waited for.
    runtime.shutdown_background();
    outcome
}

async fn dispatch(command: Command, settings: &Settings) -> Result<ExitCode, Failure> {
    match command {
        Command::Up => up::run(settings).await?,
        Command::Api => serve::api(settings).await?,
        Command::Worker => serve::worker(settings).await?,
        Command::Migrate(args) => operate::migrate(settings, &args).await?,
        Command::Tenant(args) => operate::tenant(settings, args).await?,
        Command::User(args) => operate::user(settings, args).await?,
        Command::Token(args) => operate::token(settings, args).await?,
        Command::Keys(args) => return keys::run(settings, args).await,
        Command::Call(args) => return call::run(settings, args).await,
        Command::Why(args) => return why::run(settings, &args).await,
        Command::Connect(args) => return connect::run(settings, &args).await,
        // Both were done before: they need no usable settings.
        Command::Doctor(_) | Command::Completions { .. } => {}
    }
    Ok(ExitCode::SUCCESS)
}
