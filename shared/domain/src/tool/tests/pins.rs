use serde_json::json;

use super::super::*;
use crate::{Code, json::Sha256Digest};

type Seen = Result<Definition, UnusableTool>;

fn tool(name: &str, description: &str) -> Seen {
    let schema = json!({ "type": "object" });
    let raw = json!({ "name": name, "description": description, "inputSchema": schema });
    Definition::parse(&raw.to_string())
}

fn broken(name: &str) -> Seen {
    Definition::parse(&json!({ "name": name, "inputSchema": { "type": "array" } }).to_string())
}

fn hash(seen: &Seen) -> Sha256Digest {
    seen.as_ref().unwrap().hash
}

/// The rows after a discovery, as the store would hold them.
fn discover(rows: &mut Vec<KnownTool>, seen: Vec<Seen>, auto: bool) -> Discovery {
    let first = rows.is_empty();
    let found = reconcile(rows, seen, auto, first);
    for change in &found.changes {
        match change {
            ToolChange::Added(row) => rows.push(row.clone()),
            ToolChange::Changed(row) => {
                *rows.iter_mut().find(|old| old.tool_id == row.tool_id).unwrap() = row.clone();
            }
            ToolChange::Removed(id) => {
                rows.iter_mut().find(|old| old.tool_id == *id).unwrap().removed = true;
            }
        }
    }
    found
}

fn row<'a>(rows: &'a [KnownTool], name: &str) -> &'a KnownTool {
    rows.iter().find(|row| row.original_name == name).unwrap()
}

#[test]
fn the_first_discovery_approves() {
    let mut rows = Vec::new();
    discover(&mut rows, vec![tool("a", "1"), tool("b", "1")], false);
    assert!(rows.iter().all(|row| row.pin == Pin::Approved && row.pending.is_none()));
    assert_eq!(
        discover(&mut rows, vec![tool("b", "1"), tool("a", "1")], false),
        Discovery::default()
    );
}

#[test]
fn a_changed_definition_waits_beside_the_approved_one_until_it_is_that_again() {
    let mut rows = Vec::new();
    discover(&mut rows, vec![tool("a", "1")], false);
    discover(&mut rows, vec![tool("a", "2")], true);
    let changed = row(&rows, "a");
    assert_eq!(changed.pin, Pin::Quarantined);
    assert_eq!(changed.approved().unwrap().hash, hash(&tool("a", "1")));
    assert_eq!(changed.pending.as_ref().unwrap().hash, hash(&tool("a", "2")));
    assert!(changed.problem.is_some());
    discover(&mut rows, vec![tool("a", "1")], false);
    let back = row(&rows, "a");
    assert_eq!((back.pin, &back.pending, &back.problem), (Pin::Approved, &None, &None));
}

#[test]
fn a_release_is_of_the_definition_that_was_seen() {
    let mut rows = Vec::new();
    discover(&mut rows, vec![tool("a", "1")], false);
    discover(&mut rows, vec![tool("a", "2")], false);
    let stale = row(&rows, "a").clone().approve(hash(&tool("a", "1"))).unwrap_err();
    assert_eq!(stale.code, Code::Conflict);
    let released = row(&rows, "a").clone().approve(hash(&tool("a", "2"))).unwrap();
    assert_eq!(released.pin, Pin::Approved);
    assert_eq!(released.approved().unwrap().hash, hash(&tool("a", "2")));
    // Again is nothing new; another one is.
    assert_eq!(released.clone().approve(hash(&tool("a", "2"))).unwrap(), released);
    let other = released.approve(hash(&tool("a", "1"))).unwrap_err();
    assert_eq!(other.details.unwrap()["definitionHash"], serde_json::Value::Null);
}

#[test]
fn new_tools_on_a_known_server_follow_the_tenants_word() {
    for (auto, pin) in [(true, Pin::Approved), (false, Pin::Quarantined)] {
        let mut rows = Vec::new();
        discover(&mut rows, vec![tool("a", "1")], false);
        discover(&mut rows, vec![tool("a", "1"), tool("b", "1")], auto);
        assert_eq!(row(&rows, "b").pin, pin);
    }
}

#[test]
fn a_quarantined_new_tool_stays_so_whatever_is_trusted_later() {
    let mut rows = Vec::new();
    discover(&mut rows, vec![tool("a", "1")], false);
    discover(&mut rows, vec![tool("a", "1"), tool("b", "1")], false);
    discover(&mut rows, vec![tool("a", "1"), tool("b", "2")], true);
    let new = row(&rows, "b");
    assert_eq!((new.pin, new.approved()), (Pin::Quarantined, None));
    assert_eq!(new.definition, new.pending);
    assert_eq!(new.pending.as_ref().unwrap().hash, hash(&tool("b", "2")));
}

#[test]
fn a_tool_that_is_gone_cannot_come_back_changed_unseen() {
    let mut rows = Vec::new();
    discover(&mut rows, vec![tool("a", "1"), tool("b", "1")], true);
    let found = discover(&mut rows, vec![tool("b", "1")], true);
    assert_eq!(found.changes, [ToolChange::Removed("a".into())]);
    assert_eq!(discover(&mut rows, vec![tool("b", "1")], true), Discovery::default());
    let mut changed = rows.clone();
    discover(&mut changed, vec![tool("a", "2"), tool("b", "1")], true);
    assert_eq!((row(&changed, "a").pin, row(&changed, "a").removed), (Pin::Quarantined, false));
    discover(&mut rows, vec![tool("a", "1"), tool("b", "1")], false);
    assert_eq!((row(&rows, "a").pin, row(&rows, "a").removed), (Pin::Approved, false));
}

#[test]
fn one_bad_schema_hides_one_tool_and_keeps_its_pin() {
    let mut rows = Vec::new();
    discover(&mut rows, vec![tool("a", "1"), broken("b")], false);
    assert_eq!(row(&rows, "a").pin, Pin::Approved);
    let bad = row(&rows, "b");
    assert_eq!((bad.pin, bad.approved()), (Pin::Invalid, None));
    assert_eq!(
        bad.problem.as_deref(),
        Some("input schema: the schema does not describe an object")
    );
    discover(&mut rows, vec![broken("a"), tool("b", "1")], false);
    assert_eq!(row(&rows, "a").pin, Pin::Invalid);
    assert_eq!(row(&rows, "a").approved().unwrap().hash, hash(&tool("a", "1")));
    assert_eq!(row(&rows, "b").pin, Pin::Quarantined);
    discover(&mut rows, vec![tool("a", "1"), tool("b", "1")], false);
    assert_eq!((row(&rows, "a").pin, &row(&rows, "a").problem), (Pin::Approved, &None));
}

#[test]
fn a_nameless_tool_is_reported_and_no_row() {
    let nameless = Definition::parse("{}");
    let mut rows = Vec::new();
    let found = discover(&mut rows, vec![nameless, tool("a", "1")], false);
    assert_eq!(found.problems, [ToolProblem::NoName]);
    assert_eq!(rows.len(), 1);
}

#[test]
fn names_listed_twice_or_with_one_id_are_all_hidden() {
    let mut rows = Vec::new();
    discover(&mut rows, vec![tool("a", "1"), tool("a", "2"), tool("b", "1")], false);
    assert_eq!((rows.len(), row(&rows, "a").pin), (2, Pin::Invalid));
    let mut rows = Vec::new();
    discover(&mut rows, vec![tool("a.b", "1")], false);
    let taken = row(&rows, "a.b").tool_id.to_string();
    discover(&mut rows, vec![tool("a.b", "1"), tool(&taken, "1")], true);
    assert_eq!(row(&rows, "a.b").pin, Pin::Invalid);
    assert_eq!(row(&rows, "a.b").approved().unwrap().hash, hash(&tool("a.b", "1")));
    assert_eq!(row(&rows, &taken).pin, Pin::Invalid);
    assert_ne!(row(&rows, &taken).tool_id.as_str(), taken);
    // The id of a tool that is gone is not for another one either.
    discover(&mut rows, vec![tool(&taken, "1")], true);
    discover(&mut rows, vec![tool("a.b", "1")], true);
    assert_eq!(row(&rows, "a.b").pin, Pin::Approved);
}

#[test]
fn an_id_that_stands_for_a_tool_that_is_gone_is_not_taken_over() {
    let mut rows = Vec::new();
    discover(&mut rows, vec![tool("a.b", "1"), tool("c", "1")], false);
    let id = row(&rows, "a.b").tool_id.to_string();
    discover(&mut rows, vec![tool("c", "1")], false);
    discover(&mut rows, vec![tool("c", "1"), tool(&id, "1")], true);
    assert_eq!(row(&rows, &id).problem.as_deref(), Some("the name collides with \"a.b\""));
}

#[test]
fn an_imitation_is_quarantined_even_at_the_first_discovery() {
    let mut rows = Vec::new();
    let seen = ["read_file", "ｒead_file", "mixеd", "hid\u{200b}den", "fine", "größe"];
    discover(&mut rows, seen.iter().map(|name| tool(name, "1")).collect(), true);
    assert_eq!(row(&rows, "read_file").pin, Pin::Approved);
    let problem = |name: &str| row(&rows, name).problem.clone().unwrap();
    assert_eq!(problem("ｒead_file"), "the name looks like \"read_file\"");
    assert_eq!(problem("mixеd"), "the name \"mix\\u{435}d\" mixes scripts");
    assert!(problem("hid\u{200b}den").contains("cannot be seen"));
    assert_eq!(row(&rows, "fine").pin, Pin::Approved);
    assert_eq!(row(&rows, "größe").pin, Pin::Approved);
}

#[test]
fn of_two_ascii_names_the_later_one_is_the_imitation() {
    let mut rows = Vec::new();
    discover(&mut rows, vec![tool("list1", "1")], false);
    discover(&mut rows, vec![tool("list1", "1"), tool("listl", "1")], true);
    assert_eq!(row(&rows, "list1").pin, Pin::Approved);
    assert_eq!(row(&rows, "listl").pin, Pin::Quarantined);
}
