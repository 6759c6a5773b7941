use proptest::prelude::*;
use serde_json::json;

use super::*;

fn submitted(entries: &[(&str, Option<&str>)]) -> SecretForm {
    let entry =
        |(name, value): &(&str, Option<&str>)| ((*name).to_owned(), value.map(SecretText::new));
    entries.iter().map(entry).collect()
}

fn existing(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn the_edit_table_holds() {
    let edits = edit_secrets(
        &existing(&["kept", "replaced", "cleared", "gone"]),
        &submitted(&[
            ("kept", None),
            ("replaced", Some("new")),
            ("cleared", Some("")),
            ("added", Some("x")),
        ]),
    );
    let edits = edits.unwrap();
    assert_eq!(edits.keep, ["kept"]);
    let set: Vec<(&str, &str)> =
        edits.set.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
    assert_eq!(set, [("added", "x"), ("cleared", ""), ("replaced", "new")]);
    assert_eq!(edits.delete, ["gone"]);
    assert_eq!(edits.names(), ["added", "cleared", "kept", "replaced"]);
    assert!(!format!("{edits:?}").contains("new"));
}

#[test]
fn null_for_a_name_that_does_not_exist_refuses_the_save() {
    for name in ["b", "A"] {
        let refused =
            edit_secrets(&existing(&["a"]), &submitted(&[(name, None), ("a", Some("x"))]));
        assert_eq!(refused.unwrap_err().code, Code::InvalidInput);
    }
    assert_eq!(paths(&json!({ "headers": { "X-A": null } })), ["/headers/X-A"]);
}

#[test]
fn two_nulls_keep_each_ones_own() {
    let edits =
        edit_secrets(&existing(&["A", "B"]), &submitted(&[("A", None), ("B", None)])).unwrap();
    assert_eq!(edits.keep, ["A", "B"]);
    assert!(!edits.changes_anything());
}

#[test]
fn the_reach_changes_with_what_decides_where_calls_go() {
    let base = json!({ "headers": {} });
    let old = reach(&valid(&base));
    let changed = |changes: &Value| {
        let new = valid(changes);
        reach_changed(&old, &reach(&new), new.changes_secrets())
    };
    for same in [
        json!({ "name": "Other", "description": "d", "icon": "x", "tags": ["t"] }),
        json!({ "timeoutSeconds": 5, "enabled": true, "governance": { "maxConcurrent": 2 } }),
    ] {
        assert!(!changed(&same), "{same}");
    }
    for other in [
        json!({ "url": "https://mcp.example.com/other" }),
        json!({ "transport": "sse" }),
        json!({ "authMode": "bearer" }),
        json!({ "authMode": "oauth" }),
        json!({ "headers": { "X-A": "x" } }),
    ] {
        assert!(changed(&other), "{other}");
    }
    let with_header = Known { headers: existing(&["X-A"]), ..Known::default() };
    let save = |headers: Value| {
        let form = form(&json!({ "headers": headers }));
        form.validate(&UrlRules::default(), &with_header).unwrap().changes_secrets()
    };
    assert!(!save(json!({ "X-A": null })));
    assert!(save(json!({ "X-A": "anything" })));
    assert!(save(json!({})));
}

#[test]
fn dollars_are_variables_or_themselves() {
    use Part::{Literal, Variable};
    assert_eq!(variables("Bearer $TOKEN!"), [Literal("Bearer "), Variable("TOKEN"), Literal("!")]);
    assert_eq!(variables("$A$_b2"), [Variable("A"), Variable("_b2")]);
    assert_eq!(variables("$$A"), [Literal("$"), Literal("A")]);
    assert_eq!(variables("$$$A"), [Literal("$"), Variable("A")]);
    assert_eq!(variables("5$ $1 $-"), [Literal("5$ $1 $-")]);
    assert_eq!(variables(""), []);
    let expanded = expand("a $X $$X ${X} $", |name| (name == "X").then(|| "1".to_owned()));
    assert_eq!(expanded.unwrap(), "a 1 $X ${X} $");
    let error = expand("$Y", |_| None).unwrap_err();
    assert_eq!(error.code, Code::ServerMisconfigured);
    assert_eq!(error.public, "the variable $Y does not exist");
}

proptest! {
    #[test]
    fn doubled_dollars_come_out_as_they_went_in(text in ".{0,40}|[$A-C_1 ]{0,20}") {
        let doubled = text.replace('$', "$$");
        prop_assert_eq!(expand(&doubled, |_| None).unwrap(), text);
    }

    #[test]
    fn what_a_variable_holds_is_not_read_again(value in "[$A-Z]{0,8}") {
        prop_assert_eq!(expand("<$V>", |_| Some(value.clone())).unwrap(), format!("<{value}>"));
    }
}
