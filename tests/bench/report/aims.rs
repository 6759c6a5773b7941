//! What the service sets out to reach (docs/performance.md), beside what was found.

use std::fmt;

use serde_json::{Value, json};

use super::{Report, Subject, megabytes, rounded};
use crate::{callers::Kind, connections::WINDOW, measured::Measured};

/// Memory is flat if it grew by no more than this part since the first quarter of the sessions: before
/// that, pools and arenas fill.
const FLAT: f64 = 1.05;

#[derive(Debug)]
pub(super) struct Aim {
    name: &'static str,
    found: f64,
    /// At most this, unless `at_least`.
    wanted: f64,
    at_least: bool,
    unit: &'static str,
}

impl Aim {
    fn at_most(name: &'static str, found: f64, wanted: f64, unit: &'static str) -> Self {
        Self { name, found, wanted, at_least: false, unit }
    }

    fn met(&self) -> bool {
        if self.at_least { self.found >= self.wanted } else { self.found <= self.wanted }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "bench": "aim", "aim": self.name, "found": rounded(self.found), "wanted": rounded(self.wanted),
            "met": self.met(),
        })
    }
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<7}{}: {:.3} {unit}, wanted {} {:.3} {unit}",
            if self.met() { "met" } else { "missed" },
            self.name,
            self.found,
            if self.at_least { "≥" } else { "≤" },
            self.wanted,
            unit = self.unit
        )
    }
}

pub(super) fn judge(report: &Report) -> Vec<Aim> {
    let gateway = |callers, durable| report.find(Subject::Gateway(Kind::Mcp), callers, durable);
    let direct = |durable| mean(&report.find(Subject::Direct(Kind::Mcp), 1, durable), p50);
    let added = |durable| mean(&gateway(1, durable), p50) - direct(durable);
    let sync = report.fdatasync_ms();
    let mut aims = vec![
        Aim::at_most("added p50 at 1 caller, durable", added(true), 2.0 * sync + 1.5, "ms"),
        Aim::at_most("added p50 at 1 caller, commits not waited for", added(false), 1.5, "ms"),
        Aim {
            name: "calls a second at 16 callers, durable",
            found: mean(&gateway(16, true), Measured::per_second),
            wanted: 600.0,
            at_least: true,
            unit: "a second",
        },
        Aim::at_most(
            "our CPU a call at 16 callers, durable",
            mean(&gateway(16, true), Measured::cpu_ms),
            0.5,
            "ms",
        ),
        Aim::at_most(
            "our CPU a call at 1 caller, durable",
            mean(&gateway(1, true), Measured::cpu_ms),
            0.5,
            "ms",
        ),
        Aim::at_most(
            "upstream requests a warm call",
            report
                .figures
                .iter()
                .filter(|figure| figure.history.is_some())
                .map(|figure| figure.measured.upstream_per_call())
                .fold(0.0, f64::max),
            1.0,
            "",
        ),
    ];
    aims.extend(of_connections(report));
    if let [(_, empty), (rows, full)] = report.hits[..]
        && rows > 0
    {
        // A fresh installation that reads more than a full one is no success of the full one: its
        // plans were made for empty tables, and read more with every call.
        let apart = (full / empty).max(empty / full);
        let name = "buffer hits at 0 and 20,000 rows, the larger of the smaller";
        aims.push(Aim::at_most(name, apart, 1.1, "times"));
    }
    if let [_, first, .., last] = report.memory[..] {
        let most = report.memory.iter().map(|(_, kb)| *kb).max().unwrap_or_default();
        aims.push(Aim::at_most("resident memory of `up`", megabytes(most), 80.0, "MB"));
        let grown = f64::from(last.1) / f64::from(first.1);
        aims.push(Aim::at_most(
            "memory after all abandoned sessions, of that after a quarter",
            grown,
            FLAT,
            "times",
        ));
    }
    aims
}

/// What reading back adds to a call, which it is part of, and how fast connections are refreshed.
fn of_connections(report: &Report) -> Vec<Aim> {
    let mut aims = Vec::new();
    let cpu = |measured: &Measured| measured.cpu_ms() + measured.postgres_cpu_ms();
    for (readers, measured) in &report.read_backs {
        if *readers == 1 {
            aims.push(Aim::at_most("p50 of reading back", p50(measured), 0.5, "ms"));
        } else {
            let whole = mean(&report.find(Subject::Own, *readers, true), cpu);
            let part = cpu(measured) / (whole - cpu(measured)).max(f64::EPSILON);
            let name = "CPU of reading back, of that of the rest of a call";
            aims.push(Aim::at_most(name, 100.0 * part, 10.0, "%"));
        }
    }
    if let Some((measured, _)) = &report.refreshed {
        let (found, unit) = (measured.per_second(), "a second");
        let name = "connections refreshed, each by a call";
        aims.push(Aim { name, found, wanted: 200.0, at_least: true, unit });
        let (took, window) = (measured.elapsed().as_secs_f64(), WINDOW.as_secs_f64());
        aims.push(Aim::at_most("all of them, within their window", took, window, "s"));
    }
    aims
}

fn p50(measured: &Measured) -> f64 {
    measured.percentile_ms(500)
}

/// Of the figures with and without history.
fn mean(measured: &[&Measured], of: impl Fn(&Measured) -> f64) -> f64 {
    let count = u32::try_from(measured.len()).unwrap_or(1).max(1);
    measured.iter().map(|one| of(one)).sum::<f64>() / f64::from(count)
}
