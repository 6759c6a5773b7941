//! What is wrong with an installation, and what mends it; for `bailiwick doctor`.
//!
//! Nothing is changed, and nothing that is found ends the looking: where one thing is broken, the
//! others still can be told. Words name counts, tables and our own names, never a stored value.

pub mod egress;
mod schema;
mod tenants;
mod work;

use std::fmt::Display;

use chrono::TimeDelta;
use domain::{Error, Timestamp, Via, limits};
use outbound::blobs::Blobs;
use serde::Serialize;
use store::{Db, StoreError, vault::Vault};
use tokio::time;

use crate::Clock;

/// How one thing stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Ok,
    /// It works, and will not for long, or not for everybody.
    Warn,
    /// It does not work.
    Fail,
}

impl Verdict {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub verdict: Verdict,
    /// What was looked at: a heading of docs/troubleshooting.md.
    pub what: &'static str,
    pub found: String,
    /// What to do about it.
    pub mend: Option<String>,
}

impl Finding {
    pub fn ok(what: &'static str, found: impl Into<String>) -> Self {
        Self { verdict: Verdict::Ok, what, found: found.into(), mend: None }
    }

    pub fn warn(what: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warn, what, found: found.into(), mend: Some(mend.into()) }
    }

    pub fn fail(what: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { verdict: Verdict::Fail, ..Self::warn(what, found, mend) }
    }
}

/// What the looking at a database needs.
#[derive(Debug)]
pub struct Patient<'a> {
    pub db: &'a Db,
    /// The keyring that the service would have.
    pub vault: &'a Vault,
    pub clock: &'a Clock,
    /// Whether programs may be run as MCP servers.
    pub stdio: bool,
}

/// What was found in the database, and what others must know of it.
#[derive(Debug, Default)]
pub struct Examined {
    pub findings: Vec<Finding>,
    /// The database answered.
    pub reached: bool,
    /// A node that serves HTTP was alive lately.
    pub serving: bool,
    /// Servers of any tenant run as programs of this machine.
    pub stdio_servers: usize,
}

/// Looks at the database and at what is in it. One that does not answer is the only finding then.
pub async fn database(patient: &Patient<'_>) -> Examined {
    let mut examined = Examined::default();
    let Some(server) = schema::server(patient, &mut examined.findings).await else {
        return examined;
    };
    examined.reached = true;
    schema::clock(patient, &mut examined.findings).await;
    let usable = schema::migrations(patient, &mut examined.findings).await;
    if !usable {
        return examined;
    }
    schema::rows(patient, &mut examined.findings).await;
    schema::partitions(patient, &mut examined.findings).await;
    let nodes = work::nodes(patient, &mut examined).await;
    schema::settings(patient, &server, nodes.count, &mut examined.findings).await;
    work::ticks(patient, &nodes, &mut examined.findings).await;
    work::jobs(patient, &nodes, &mut examined.findings).await;
    work::left_over(patient, &nodes, &mut examined.findings).await;
    tenants::look(patient, &mut examined).await;
    examined
}

/// Whether the token of a file can still be used, and until when.
pub async fn token(patient: &Patient<'_>, what: &'static str, name: &str, token: &str) -> Finding {
    let mend = format!(
        "make a new one with `bailiwick token create` and write it to the file {name}, mode 0600"
    );
    let (db, now) = (patient.db, patient.clock.now());
    let looked = look(async {
        let caller = crate::identity::holder_of(db, token, now, Via::Token).await?;
        let Via::Token(id) = caller.via else { return Ok(None) };
        let mut tx = db.begin(caller.tenant).await?;
        let ends = store::doctor::token_ends(&mut tx, id).await?;
        tx.commit().await?;
        Ok::<_, Error>(ends)
    });
    match looked.await {
        Ok(Some(ends)) if ends - now < days(limits::TOKEN_ENDS_DAYS.default) => {
            Finding::warn(what, format!("the token of {name} ends at {}", day(ends)), mend)
        }
        Ok(Some(ends)) => Finding::ok(what, format!("{name} is usable until {}", day(ends))),
        Ok(None) => Finding::warn(what, format!("the token of {name} is gone"), mend),
        Err(unseen) => Finding::warn(what, format!("the token of {name}: {unseen}"), mend),
    }
}

/// Writes, reads and deletes one small body.
pub async fn object_store(blobs: Result<Blobs, Error>, clock: &Clock) -> Finding {
    const WHAT: &str = "object store";
    let mend = "make the directory of object_store_url writable for the account that serves, and see \
                that its disk is not full";
    let body = bytes::Bytes::from_static(b"doctor");
    let key = format!("doctor/{}", clock.mint::<uuid::Uuid>());
    let tried = look(async {
        let blobs = blobs?;
        blobs.put(&key, body.clone()).await?;
        let read = blobs.get(&key).await;
        blobs.delete(&key).await?;
        Ok::<_, Error>(read? == body)
    });
    match tried.await {
        Ok(true) => Finding::ok(WHAT, "written, read and deleted"),
        Ok(false) => Finding::fail(WHAT, "what was read is not what was written", mend),
        Err(unseen) => Finding::fail(WHAT, unseen.to_string(), mend),
    }
}

/// Why something could not be looked at, with its causes: the reader is the operator.
#[derive(Debug)]
struct Unseen(String);

impl Display for Unseen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The outcome of one look, within its time.
async fn look<T, E: Into<Error>>(looking: impl Future<Output = Result<T, E>>) -> Result<T, Unseen> {
    let Ok(seen) = time::timeout(limits::DOCTOR_LOOK_MS.millis(), looking).await else {
        return Err(Unseen("no answer in time".to_owned()));
    };
    seen.map_err(|error| Unseen(words(&error.into())))
}

/// The same for one question to the database; a broken one is a finding of its own.
async fn ask<T>(
    what: &'static str,
    findings: &mut Vec<Finding>,
    question: impl Future<Output = Result<T, StoreError>>,
) -> Option<T> {
    match look(question).await {
        Ok(answer) => Some(answer),
        Err(unseen) => {
            let mend =
                "see the log of the database; where the schema was changed by hand, change it back";
            findings.push(Finding::fail(what, format!("cannot be looked at: {unseen}"), mend));
            None
        }
    }
}

fn words(error: &Error) -> String {
    let mut words = vec![error.public.clone()];
    let mut cause = error.source.as_deref().map(|cause| cause as &dyn std::error::Error);
    while let Some(error) = cause {
        let said = error.to_string();
        if !words.last().is_some_and(|above| above.ends_with(&said)) {
            words.push(said);
        }
        cause = error.source();
    }
    words.join(": ")
}

/// `a, b and 3 more`: the first few names.
fn named<T: Display>(names: &[T]) -> String {
    let most = limits::DOCTOR_NAMES.size();
    let shown: Vec<String> = names.iter().take(most).map(ToString::to_string).collect();
    match names.len().saturating_sub(most) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// `1 row`, `2 rows`.
fn counted(number: impl TryInto<u64>, one: &str) -> String {
    let number = number.try_into().unwrap_or_default();
    let many = if number == 1 { "" } else { "s" };
    format!("{number} {one}{many}")
}

fn day(at: Timestamp) -> String {
    at.format("%Y-%m-%d %H:%M UTC").to_string()
}

fn days(days: u64) -> TimeDelta {
    TimeDelta::days(i64::try_from(days).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::{counted, named};

    #[test]
    fn many_names_are_a_number() {
        assert_eq!(named(&["a", "b"]), "a, b");
        let many: Vec<u32> = (1..=13).collect();
        assert_eq!(named(&many), "1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 3 more");
        assert_eq!((counted(1, "row"), counted(0_usize, "row")), ("1 row".into(), "0 rows".into()));
    }
}
