use proptest::prelude::*;
use serde_json::json;

use super::*;

fn submitted(entries: &[(&str, Option<&str>)]) -> SecretForm {
    let entry =
        |(name, value): &(&str, Option<&str>)| ((*name).to_owned(), value.map(SecretText::new));
    entries.iter().map(entry).collect()
}

fn existing(names: &[&str]) -> KnownSecrets {
    names.iter().map(|name| ((*name).to_owned(), Vec::new())).collect()
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
        against(&json!({ "headers": headers }), &with_header, &[]).unwrap().changes_secrets()
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
    let expanded = expand("a $X $$X ${X} $", |name| Ok(name.to_lowercase()));
    assert_eq!(expanded.unwrap(), "a x $X ${X} $");
    let error = expand("$Y", |name| Err(missing_variable(name))).unwrap_err();
    assert_eq!(error.code, Code::ServerMisconfigured);
    assert_eq!(error.public, "the variable $Y does not exist");
    assert_eq!(references("$B $A$$C $A"), ["A", "B"]);
    let grown = expand(&"$X".repeat(100), |_| Ok("x".repeat(200))).unwrap_err();
    assert_eq!(grown.code, Code::ServerMisconfigured);
}

#[test]
fn a_secret_is_not_kept_for_somebody_else() {
    let place = |url: &str| Place::of(Transport::Http, url, "", &[], "");
    let known = Known {
        place: place("https://mcp.example.com/a"),
        headers: existing(&["X-A"]),
        ..Known::default()
    };
    let kept = |url: &str| {
        let form = json!({ "url": url, "headers": { "X-A": null, "X-B": "new" } });
        against(&form, &known, &[])
    };
    for same in ["https://mcp.example.com/b?c", "https://MCP.example.com:443/"] {
        assert!(kept(same).is_ok(), "{same}");
    }
    for other in [
        "https://mcp.example.com:8443/a",
        "https://mcp.example.org/a",
        "https://x.mcp.example.com/a",
        "http://localhost/a",
    ] {
        let details = kept(other).unwrap_err().details.unwrap();
        assert_eq!(details["errors"].as_array().unwrap().len(), 1, "{other} {details}");
        assert_eq!(details["errors"][0]["path"], "/headers/X-A");
    }
    let anew = json!({ "url": "https://mcp.example.org/", "headers": { "X-A": "given" } });
    assert!(against(&anew, &known, &[]).is_ok());

    let known = Known {
        place: Place::of(Transport::Stdio, "", "/bin/x", &[], ""),
        env: existing(&["A"]),
        ..Known::default()
    };
    let program = |command: &str| {
        let form = json!({ "transport": "stdio", "command": command, "env": { "A": null } });
        against(&form, &known, &[])
    };
    assert!(program("/bin/x").is_ok());
    assert!(program("/bin/y").is_err());
}

#[test]
fn a_variable_goes_to_its_hosts_alone() {
    let variables: &[(&str, &[&str])] = &[
        ("HERE", &["mcp.example.com"]),
        ("THERE", &["other.example.com", "stdio"]),
        ("NOWHERE", &[]),
    ];
    let headers = |value: &str| {
        against(&json!({ "headers": { "X-A": value } }), &Known::default(), variables).is_ok()
    };
    assert!(headers("Bearer $HERE"));
    for refused in ["$THERE", "$NOWHERE", "$MISSING", "$HERE$THERE"] {
        assert!(!headers(refused), "{refused}");
    }
    let env = |value: &str| {
        let form = json!({ "transport": "stdio", "command": "/x", "env": { "A": value } });
        against(&form, &Known::default(), variables).is_ok()
    };
    assert!(env("$THERE") && !env("$HERE") && !env("$NOWHERE"));
    // A host of that name is no program.
    let stdio = json!({ "url": "https://stdio/", "headers": { "X-A": "$THERE" } });
    assert!(against(&stdio, &Known::default(), variables).is_err());
    // Nor is one kept that may no longer go there.
    let headers = [("X-A".to_owned(), vec!["THERE".to_owned()])].into_iter().collect();
    let known = Known { headers, ..Known::default() };
    assert!(against(&json!({ "headers": { "X-A": null } }), &known, variables).is_err());
}

#[test]
fn a_variable_has_a_name_a_value_and_hosts() {
    let form = |value: &str, hosts: &[&str]| VariableForm {
        value: SecretText::new(value),
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
    };
    let hosts =
        ["Example.COM", "example.com.", "münchen.example", "127.0.0.1", "::1", "[::1]", "stdio"];
    let valid = form("hunter2", &hosts).validate("_A1").unwrap();
    let expected = ["example.com", "xn--mnchen-3ya.example", "127.0.0.1", "[::1]", "stdio"];
    assert_eq!(valid.hosts, expected);
    assert!(!format!("{valid:?}").contains("hunter2"));
    for name in ["", "1A", "A-B", "A B", "Ä", &"A".repeat(101)] {
        assert!(form("x", &[]).validate(name).is_err(), "{name}");
    }
    for host in ["", "*", "*.example.com", "https://a", "a:80", "a/b", "a b", "a,b", "user@a"] {
        assert!(form("x", &[host]).validate("A").is_err(), "{host}");
    }
    for value in ["", " a", "a\n", "a\0", &"x".repeat(16_385)] {
        assert!(form(value, &[]).validate("A").is_err(), "{value:?}");
    }
    let error = form("", &["*", "a:1"]).validate("1").unwrap_err();
    assert_eq!(error.details.unwrap()["errors"].as_array().unwrap().len(), 4);
}

proptest! {
    #[test]
    fn doubled_dollars_come_out_as_they_went_in(text in ".{0,40}|[$A-C_1 ]{0,20}") {
        let doubled = text.replace('$', "$$");
        prop_assert_eq!(expand(&doubled, |name| Err(missing_variable(name))).unwrap(), text);
    }

    #[test]
    fn what_a_variable_holds_is_not_read_again(value in "[$A-Z]{0,8}") {
        prop_assert_eq!(expand("<$V>", |_| Ok(value.clone())).unwrap(), format!("<{value}>"));
    }
}
