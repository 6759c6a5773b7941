//! What the house agreed on (docs/architecture.md), checked from its files.
//!
//! Generated pages are renewed by `BLW_WRITE=1 cargo nextest run -E 'test(tidy)'`.

mod tree;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    process::Command,
};

use domain::{Code, limits};
use serde_json::Value;
use tree::{File, root};

/// Which of our crates each may import.
const IMPORTS: [(&str, &[&str]); 11] = [
    ("domain", &[]),
    ("store", &["domain"]),
    ("coordination", &["domain"]),
    ("outbound", &["domain"]),
    ("runtime", &["domain"]),
    ("app", &["domain", "store", "coordination", "outbound"]),
    ("api", &["domain", "app", "runtime"]),
    ("worker", &["domain", "app", "runtime"]),
    ("bailiwick", &["domain", "api", "worker", "app", "outbound", "runtime"]),
    ("bailiwick-demo", &[]),
    (
        "tests",
        &[
            "domain",
            "store",
            "coordination",
            "outbound",
            "runtime",
            "app",
            "api",
            "worker",
            "bailiwick",
            "bailiwick-demo",
        ],
    ),
];

/// Where a library may be used at all.
const HOMES: [(&str, &[&str]); 8] = [
    ("sqlx", &["store", "tests"]),
    ("apalis", &["worker", "tests"]),
    ("apalis-postgres", &["store", "worker", "tests"]),
    ("reqwest", &["outbound", "bailiwick", "tests"]),
    ("rmcp", &["outbound", "api", "bailiwick", "bailiwick-demo", "tests"]),
    ("axum", &["api", "bailiwick-demo", "tests"]),
    ("fernet", &["store"]),
    ("jsonwebtoken", &["app", "tests"]),
];

/// `domain` does no I/O, reads no clock and draws no randomness.
const NOT_IN_DOMAIN: [&str; 6] = ["tokio", "sqlx", "reqwest", "getrandom", "futures", "tracing"];

const MOST_LINES: usize = 500;

/// The home of every number.
const LIMITS: &str = "shared/domain/src/limits.rs";

#[test]
fn crates_import_what_the_table_allows() {
    let allowed: BTreeMap<&str, &[&str]> = IMPORTS.into();
    let packages = packages();
    let ours: BTreeSet<&str> = packages.keys().map(String::as_str).collect();
    let named: BTreeSet<&str> = allowed.keys().copied().collect();
    assert_eq!(ours, named, "each crate of the workspace has its line in the table");
    for (package, dependencies) in &packages {
        for dependency in dependencies.iter().filter(|one| ours.contains(one.as_str())) {
            let fine = allowed[package.as_str()].contains(&dependency.as_str());
            assert!(fine, "{package} may not import {dependency}");
        }
    }
}

#[test]
fn libraries_stay_at_home() {
    let packages = packages();
    for (library, homes) in HOMES {
        for (package, dependencies) in &packages {
            let fine = !dependencies.contains(library) || homes.contains(&package.as_str());
            assert!(fine, "{library} is used in {package}; its homes are {homes:?}");
        }
    }
    for library in NOT_IN_DOMAIN {
        assert!(!packages["domain"].contains(library), "domain may not use {library}");
    }
}

#[test]
fn no_file_is_longer_than_a_mind() {
    let long: Vec<String> = tree::files()
        .iter()
        .filter(|file| file.is_source() && !file.is_generated())
        .filter_map(|file| {
            let lines = file.text().lines().count();
            (lines > MOST_LINES).then(|| format!("{} has {lines} lines", file.path))
        })
        .collect();
    assert!(long.is_empty(), "at most {MOST_LINES} lines:\n{}", long.join("\n"));
}

#[test]
fn nothing_is_left_unfinished() {
    // In two parts, so that this file is not one of those that it looks for.
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("#[ig", "nore"),
    ];
    let in_browser = [concat!(".sk", "ip("), concat!(".on", "ly(")];
    let mut found = Vec::new();
    for file in tree::files().iter().filter(|file| file.is_text() && !file.is_generated()) {
        let browser = file.path.starts_with("tests/browser/");
        for (index, line) in file.text().lines().enumerate() {
            let marked = marks.iter().any(|mark| line.contains(mark))
                || browser && in_browser.iter().any(|mark| line.contains(mark));
            if marked {
                found.push(format!("{}:{}: {}", file.path, index + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "unfinished:\n{}", found.join("\n"));
}

#[test]
fn a_span_of_time_has_its_reason_in_limits_rs() {
    let units = ["micros", "millis", "secs", "mins"];
    let mut found = Vec::new();
    for file in tree::files().iter().filter(|file| file.is_shipped() && file.path != LIMITS) {
        let text = file.text();
        // Tests stand at the end of their file.
        let shipped = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (index, line) in shipped.lines().enumerate() {
            let literal = |unit: &&str| {
                let (_, after) = line.split_once(&format!("Duration::from_{unit}("))?;
                after.starts_with(|c: char| c.is_ascii_digit()).then_some(())
            };
            if units.iter().any(|unit| literal(unit).is_some()) {
                found.push(format!("{}:{}: {}", file.path, index + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "numbers that belong in {LIMITS}:\n{}", found.join("\n"));
}

#[test]
fn every_error_code_has_its_page_and_no_page_is_left_over() {
    let pages: BTreeSet<String> = fs::read_dir(root().join("docs/errors"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let codes: BTreeSet<String> = Code::ALL.iter().map(|code| format!("{code}.md")).collect();
    assert_eq!(pages, codes);
    for code in Code::ALL {
        let page = fs::read_to_string(root().join(format!("docs/errors/{code}.md"))).unwrap();
        assert!(
            page.starts_with(&format!("# {code}\n")),
            "the page of {code} begins with its name"
        );
    }
}

#[test]
fn the_page_of_limits_is_fresh() {
    is_fresh("docs/limits.md", &limits_page());
}

#[test]
fn the_openapi_document_is_fresh() {
    let document = serde_json::to_string_pretty(&api::openapi()).unwrap() + "\n";
    is_fresh("docs/openapi.json", &document);
}

#[test]
fn every_route_is_written_in_paths_rs() {
    let paths = fs::read_to_string(root().join("api/src/paths.rs")).unwrap();
    for route in api::openapi().paths.paths.keys() {
        assert!(paths.contains(&format!("\"{route}\"")), "{route} is not in api/src/paths.rs");
    }
}

#[test]
fn a_default_is_never_above_its_ceiling() {
    for limit in limits::ALL {
        assert!(limit.default <= limit.ceiling, "{}", limit.name);
    }
}

/// Name → names of what it depends on. A development dependency counts for crates of ours, whose
/// tests stand in this crate; a library's does not.
fn packages() -> BTreeMap<String, BTreeSet<String>> {
    #[expect(clippy::disallowed_methods, reason = "cargo says here which cargo it is")]
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap();
            let counted =
                dependencies.iter().filter(|one| one["kind"] != "dev" || !one["path"].is_null());
            (name(package), counted.map(name).collect())
        })
        .collect()
}

fn limits_page() -> String {
    let mut page = String::from(
        "# Limits\n\n\
         Generated from `shared/domain/src/limits.rs`. A default holds where nothing else is set; a \
         superadmin\nmay set a server's limits up to the ceiling; the other limits are fixed in this version.\n\n\
         | Name | Default | Ceiling | Unit | Why |\n|---|---:|---:|---|---|\n",
    );
    for limit in limits::ALL {
        let (default, ceiling) = (grouped(limit.default), grouped(limit.ceiling));
        let reason = limit.reason.replace('|', "\\|");
        writeln!(page, "| `{}` | {default} | {ceiling} | {} | {reason} |", limit.name, limit.unit)
            .unwrap();
    }
    page
}

/// 1234567 → 1,234,567
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Fails unless the file says this; writes it under `BLW_WRITE=1`.
fn is_fresh(path: &str, expected: &str) {
    let full = root().join(path);
    #[expect(clippy::disallowed_methods, reason = "asks the one who runs the tests")]
    let write = std::env::var("BLW_WRITE").is_ok_and(|value| value == "1");
    if write {
        fs::write(&full, expected).unwrap();
        return;
    }
    let found = fs::read_to_string(&full).unwrap_or_default();
    let same = found == expected;
    assert!(same, "{path} is stale: BLW_WRITE=1 cargo nextest run -E 'test(tidy)' renews it");
}

impl File {
    /// Rust of ours that may use `domain`: neither tests nor the demo server, which knows nothing of us.
    fn is_shipped(&self) -> bool {
        let rooms = ["api/", "worker/", "shared/", "deploy/bailiwick/"];
        rooms.iter().any(|room| self.path.starts_with(room))
            && self.has_extension(&["rs"])
            && !self.path.ends_with("tests.rs")
            && !self.path.contains("/tests/")
    }

    fn is_generated(&self) -> bool {
        self.path == "docs/openapi.json"
            || self.path.starts_with(".sqlx/")
            || self.path == "LICENSE"
    }
}
