//! The one program, `bailiwick`: serve, operate, use. It puts the layers together and holds no rule.

mod assemble;
mod call;
mod cli;
mod failure;
mod installation;
mod operate;
mod serve;
mod up;

use std::process::ExitCode;

use clap::Parser;
use runtime::config::{self, Settings};

use cli::{Cli, Command};
use failure::Failure;

/// Runs the command that the arguments name.
///
/// Exit code 0: done. 1: refused or failed, with the reason on stderr. 2: the arguments or settings are
/// not usable.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = config::load(&cli.settings, config::environment())
        .map_err(Failure::from)
        .and_then(|settings| run(cli, &settings));
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            eprint!("{failure}");
            failure.exit_code()
        }
    }
}

fn run(cli: Cli, settings: &Settings) -> Result<ExitCode, Failure> {
    // Libraries that bring no provider of their own take this one; a second call changes nothing.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    runtime::telemetry::init(settings.log_format, cli.command.log_filter(settings))
        .map_err(|error| Failure::because("the log cannot be set up", error))?;
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| Failure::because("the runtime cannot be started", error))?;
    let outcome = runtime.block_on(dispatch(cli.command, settings));
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
        Command::Call(args) => return call::run(settings, args).await,
    }
    Ok(ExitCode::SUCCESS)
}
