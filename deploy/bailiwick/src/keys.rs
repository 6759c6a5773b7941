//! `bailiwick keys`: which encryption key sealed how much, and sealing everything by the first one.

use std::{io::IsTerminal, process::ExitCode};

use app::{
    Ctx,
    keys::{KeyCount, Progress, Rotation},
};
use runtime::{config::Settings, terminal::escape};

use crate::{
    cli::{Keys, Output},
    failure::Failure,
    installation::{self, Installation},
    operate,
};

pub(crate) async fn run(settings: &Settings, command: Keys) -> Result<ExitCode, Failure> {
    let keys = match (&settings.encryption_keys, &settings.data_dir, &settings.database_url) {
        (Some(keys), ..) => Some(keys.clone()),
        (None, None, Some(_)) => None,
        _ => Installation::of(settings)?.read(installation::ENCRYPTION_KEYS)?,
    };
    let ctx = operate::open(settings, keys.as_ref()).await?;
    match command {
        Keys::Status(output) => status(&ctx, &output).await,
        Keys::Rotate(output) => rotate(&ctx, &output).await,
    }
}

async fn status(ctx: &Ctx, output: &Output) -> Result<ExitCode, Failure> {
    let counts = app::keys::status(ctx).await?;
    if output.json {
        println!("{}", escape(&json(&counts)?));
    } else {
        if counts.is_empty() {
            println!("there is no key, and nothing is sealed");
        }
        for count in &counts {
            println!("{}", escape(&line(count)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn line(count: &KeyCount) -> String {
    let place = match (count.primary, count.known) {
        (true, _) => "primary",
        (false, true) => "older",
        (false, false) => "not in the keyring",
    };
    let columns = count.columns.iter().map(|(what, rows)| format!("{rows} {what}"));
    let columns: Vec<String> = columns.collect();
    let colon = if columns.is_empty() { "" } else { ": " };
    format!("{} ({place})  {} sealed{colon}{}", count.key_id, count.sealed, columns.join(", "))
}

async fn rotate(ctx: &Ctx, output: &Output) -> Result<ExitCode, Failure> {
    let mut shown = Progress::default();
    let rotation = app::keys::rotate(ctx, |progress| {
        if progress.resealed > shown.resealed {
            tell(progress);
            shown = progress;
        }
    })
    .await?;
    if std::io::stderr().is_terminal() && shown.resealed > 0 {
        eprintln!();
    }
    if output.json {
        println!("{}", escape(&json(&rotation)?));
    } else {
        for line in words(&rotation) {
            println!("{}", escape(&line));
        }
    }
    let done = rotation.complete && rotation.unreadable.is_empty() && rotation.behind.is_empty();
    Ok(if done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// On a terminal one line that grows; elsewhere a line each.
fn tell(progress: Progress) {
    let Progress { looked_at, of, resealed } = progress;
    let line = format!("sealed anew: {resealed}; looked at: {looked_at} of {of}");
    if std::io::stderr().is_terminal() {
        eprint!("\r{line}");
    } else {
        eprintln!("{line}");
    }
}

fn words(rotation: &Rotation) -> Vec<String> {
    let Rotation { primary, resealed, unreadable, busy, complete, removable, behind } = rotation;
    let mut lines = vec![format!("sealed anew by {primary}: {resealed}")];
    for (what, rows) in unreadable {
        lines.push(format!("no key opens {rows} {what}: left as they are"));
    }
    if !complete {
        let words = "others held rows, or sealed by another key, up to the end";
        lines.push(format!("{words} ({busy} held now): run it again"));
    }
    if !behind.is_empty() {
        lines.push(format!(
            "running with another key first: {}; start these again with the keyring of this command, \
             then run it again",
            behind.join(", ")
        ));
    }
    lines.push(if removable.is_empty() {
        "nothing can be removed from BAILIWICK_ENCRYPTION_KEYS".to_owned()
    } else {
        format!("can be removed from BAILIWICK_ENCRYPTION_KEYS: {}", removable.join(", "))
    });
    lines
}

fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::because("the answer is no JSON", error))
}
