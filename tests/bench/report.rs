//! What is printed, and what is written as JSON.

mod aims;

use std::{fs, path::Path, time::Duration};

use anyhow::Context;
use serde_json::{Map, Value, json};

use crate::{
    callers::Kind,
    measured::{Measured, milliseconds},
};

/// Who was asked, and by which client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Direct(Kind),
    Gateway(Kind),
    /// Through the gateway, to a server that takes the caller's own token.
    Own,
}

impl Subject {
    fn as_str(self) -> &'static str {
        match self {
            Self::Direct(Kind::Mcp) => "direct",
            Self::Direct(Kind::Raw) => "direct_raw",
            Self::Gateway(Kind::Mcp) => "gateway",
            Self::Gateway(Kind::Raw) => "gateway_raw",
            Self::Own => "own",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) subject: Subject,
    pub(crate) callers: usize,
    /// `None` where there is no database.
    pub(crate) history: Option<u32>,
    /// Whether commits were waited for while it was measured; a direct call has none.
    pub(crate) beside: bool,
    pub(crate) measured: Measured,
}

impl Figure {
    fn durable(&self) -> Option<bool> {
        self.history.map(|_| self.beside)
    }
}

/// Everything that was measured so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    fdatasyncs: Vec<(bool, Vec<Duration>)>,
    figures: Vec<Figure>,
    /// Rows of history, shared-buffer hits a call.
    hits: Vec<(u32, f64)>,
    /// Readers, what they saw.
    read_backs: Vec<(usize, Measured)>,
    /// Of one call each that refreshed first, and resident kB afterwards.
    refreshed: Option<(Measured, u32)>,
    /// Abandoned sessions, resident kB.
    memory: Vec<(usize, u32)>,
    /// Name, what was wanted, what was found, whether that is good enough.
    aims: Vec<aims::Aim>,
    errors: u32,
}

impl Report {
    /// Beside figures whose commits were waited for, or were not.
    pub(crate) fn fdatasync(&mut self, durable: bool, times: Vec<Duration>) {
        let part = median(times.clone());
        println!("one fdatasync beside the next figures: {:.3} ms (median)", milliseconds(part));
        self.fdatasyncs.push((durable, times));
    }

    /// The median of what was measured while commits were waited for: those are judged by it.
    fn fdatasync_ms(&self) -> f64 {
        let durable = self.fdatasyncs.iter().filter(|(durable, _)| *durable);
        milliseconds(median(durable.flat_map(|(_, times)| times.clone()).collect()))
    }

    /// Above a table of figures.
    #[expect(clippy::unused_self, reason = "belongs to the lines that `figure` prints")]
    pub(crate) fn head(&self) {
        println!(
            "{:<12}{:>8}{:>9}{:>9}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>8}",
            "subject",
            "callers",
            "history",
            "durable",
            "p50 ms",
            "p99 ms",
            "calls/s",
            "cpu ms",
            "pg cpu ms",
            "upstream",
            "errors"
        );
    }

    pub(crate) fn figure(&mut self, figure: Figure) {
        let Figure { subject, callers, history, measured, .. } = &figure;
        let governed = history.is_some();
        println!(
            "{:<12}{:>8}{:>9}{:>9}{:>10.3}{:>10.3}{:>10.0}{:>10}{:>10}{:>10.2}{:>8}",
            subject.as_str(),
            callers,
            history.map_or("-".to_owned(), |rows| rows.to_string()),
            figure.durable().map_or("-", |durable| if durable { "yes" } else { "no" }),
            measured.percentile_ms(500),
            measured.percentile_ms(990),
            measured.per_second(),
            if governed { format!("{:.3}", measured.cpu_ms()) } else { "-".to_owned() },
            if governed { format!("{:.3}", measured.postgres_cpu_ms()) } else { "-".to_owned() },
            measured.upstream_per_call(),
            measured.errors,
        );
        self.count(measured);
        self.figures.push(figure);
    }

    /// `measured` are the calls that the hits were counted over.
    pub(crate) fn hits(&mut self, history: u32, hits: f64, measured: &Measured) {
        println!("  {history:>6} rows: {hits:.1} in {} calls", measured.calls());
        self.count(measured);
        self.hits.push((history, hits));
    }

    pub(crate) fn read_back(&mut self, readers: usize, measured: Measured) {
        println!(
            "  {readers:>6} at once: p50 {:.3} ms, p99 {:.3} ms, {:.0} a second, cpu {:.3} ms, pg cpu {:.3} ms",
            measured.percentile_ms(500),
            measured.percentile_ms(990),
            measured.per_second(),
            measured.cpu_ms(),
            measured.postgres_cpu_ms(),
        );
        self.read_backs.push((readers, measured));
    }

    pub(crate) fn refreshed(&mut self, measured: Measured, kb: u32) {
        println!(
            "  p50 {:.3} ms, p99 {:.3} ms, {:.0} a second, cpu {:.3} ms, pg cpu {:.3} ms, upstream {:.2}, \
             {:.1} MB afterwards",
            measured.percentile_ms(500),
            measured.percentile_ms(990),
            measured.per_second(),
            measured.cpu_ms(),
            measured.postgres_cpu_ms(),
            measured.upstream_per_call(),
            megabytes(kb),
        );
        self.count(&measured);
        self.refreshed = Some((measured, kb));
    }

    pub(crate) fn memory(&mut self, sessions: usize, kb: u32) {
        println!("  {sessions:>6}: {:.1} MB", megabytes(kb));
        self.memory.push((sessions, kb));
    }

    pub(crate) fn failed(&mut self, error: &anyhow::Error) {
        let mut one = Measured::default();
        one.fail(error);
        self.count(&one);
    }

    fn count(&mut self, measured: &Measured) {
        if let (Some(error), 0..3) = (&measured.first_error, self.errors) {
            eprintln!("  a call failed: {error}");
        }
        self.errors += measured.errors;
    }

    /// Calls that failed while they were measured.
    pub(crate) fn errors(&self) -> u32 {
        self.errors
    }

    pub(crate) fn aims(&mut self) {
        println!("\naims (they decide nothing)");
        self.aims = aims::judge(self);
        for aim in &self.aims {
            println!("  {aim}");
        }
    }

    /// Of both histories, or the direct one that was measured beside them.
    fn find(&self, subject: Subject, callers: usize, durable: bool) -> Vec<&Measured> {
        let wanted = |figure: &&Figure| {
            figure.subject == subject && figure.callers == callers && figure.beside == durable
        };
        self.figures.iter().filter(wanted).map(|figure| &figure.measured).collect()
    }

    /// One JSON line a figure.
    pub(crate) fn write_json(&self, path: Option<&Path>) -> anyhow::Result<()> {
        let Some(path) = path else { return Ok(()) };
        let mut lines: Vec<Value> = self.figures.iter().map(|figure| self.json(figure)).collect();
        let fdatasync = rounded(self.fdatasync_ms());
        lines.push(json!({ "bench": "fdatasync", "fdatasyncMs": fdatasync }));
        lines.extend(self.hits.iter().map(|(rows, hits)| {
            json!({ "bench": "buffer_hits", "subject": "gateway", "historyRows": rows, "hitsPerCall": rounded(*hits) })
        }));
        let costs = |bench: &str, measured: &Measured| {
            json!({
                "bench": bench, "p50Ms": rounded(measured.percentile_ms(500)),
                "p99Ms": rounded(measured.percentile_ms(990)), "perSecond": rounded(measured.per_second()),
                "cpuMs": rounded(measured.cpu_ms()), "postgresCpuMs": rounded(measured.postgres_cpu_ms()),
                "count": measured.calls(), "errors": measured.errors,
            })
        };
        lines.extend(self.read_backs.iter().map(|(readers, measured)| {
            let mut line = costs("read_back", measured);
            line["readers"] = json!(readers);
            line
        }));
        lines.extend(self.refreshed.iter().map(|(measured, kb)| {
            let mut line = costs("refresh", measured);
            line["residentKb"] = json!(kb);
            line
        }));
        lines.extend(self.memory.iter().map(|(sessions, kb)| {
            json!({ "bench": "memory", "subject": "gateway", "abandonedSessions": sessions, "residentKb": kb })
        }));
        lines.extend(self.aims.iter().map(aims::Aim::json));
        let mut text = String::new();
        for line in lines {
            text.push_str(&line.to_string());
            text.push('\n');
        }
        fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
    }

    fn json(&self, figure: &Figure) -> Value {
        let measured = &figure.measured;
        let mut line = Map::new();
        let mut say = |name: &str, value: Value| line.insert(name.to_owned(), value);
        say("bench", json!("calls"));
        say("subject", json!(figure.subject.as_str()));
        say("callers", json!(figure.callers));
        say("historyRows", json!(figure.history));
        say("durable", json!(figure.durable()));
        say("besideDurable", json!(figure.beside));
        say("p50Ms", json!(rounded(measured.percentile_ms(500))));
        say("p99Ms", json!(rounded(measured.percentile_ms(990))));
        say("perSecond", json!(rounded(measured.per_second())));
        let governed = figure.history.is_some();
        say("cpuMsPerCall", json!(governed.then(|| rounded(measured.cpu_ms()))));
        say("postgresCpuMsPerCall", json!(governed.then(|| rounded(measured.postgres_cpu_ms()))));
        say("upstreamPerCall", json!(rounded(measured.upstream_per_call())));
        say("fdatasyncMs", json!(rounded(self.fdatasync_ms())));
        say("calls", json!(measured.calls()));
        say("errors", json!(measured.errors));
        Value::Object(line)
    }
}

/// A figure has no more than four digits that mean anything.
fn rounded(number: f64) -> f64 {
    (number * 10_000.0).round() / 10_000.0
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn megabytes(kb: u32) -> f64 {
    f64::from(kb) * 1_024.0 / 1_000_000.0
}
