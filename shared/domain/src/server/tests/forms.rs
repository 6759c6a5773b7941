use std::time::Duration;

use serde_json::{from_value, json};

use super::*;

#[test]
fn a_small_form_gets_the_defaults() {
    let server = valid(&json!({}));
    assert_eq!(server.timeout, Duration::from_mins(1));
    assert_eq!((server.slug.clone(), server.enabled), (None, false));
    assert_eq!(
        Governance::resolve(server.governance),
        Governance {
            max_concurrent: 1,
            max_queue_depth: 8,
            queue_timeout: Duration::from_secs(20),
            min_interval: Duration::ZERO,
            max_response_bytes: 5_000_000,
            relay_sampling: false,
        }
    );
}

#[test]
fn every_mistake_is_named_at_once() {
    let found = paths(&json!({
        "name": "", "slug": "-x", "description": "d".repeat(2_001), "tags": ["", "t".repeat(41)],
        "url": "ftp://example.com", "timeoutSeconds": 0.5,
        "headers": { "bad name": "x", "Host": "x", "ok": "a\nb" },
        "governance": { "maxConcurrent": 0, "maxQueueDepth": -1, "queueTimeoutMs": 0 },
    }));
    for path in [
        "/name",
        "/slug",
        "/description",
        "/tags/0",
        "/tags/1",
        "/url",
        "/timeoutSeconds",
        "/headers/bad name",
        "/headers/Host",
        "/headers/ok",
        "/governance/maxConcurrent",
        "/governance/maxQueueDepth",
        "/governance/queueTimeoutMs",
    ] {
        assert!(found.iter().any(|found| found == path), "{path} in {found:?}");
    }
}

#[test]
fn unknown_fields_and_modes_are_refused() {
    let refused = |body: Value| assert!(from_value::<ServerForm>(body).is_err());
    let base = json!({ "name": "x", "transport": "http", "url": "https://a", "authMode": "none" });
    for (name, value) in [
        ("extra", json!(1)),
        ("oauth", json!({ "extra": 1 })),
        ("governance", json!({ "cache": true })),
    ] {
        let mut body = base.clone();
        body[name] = value;
        refused(body);
    }
    let twice = r#"{"name":"x","transport":"http","authMode":"none","headers":{"A":null,"A":"x"}}"#;
    assert!(serde_json::from_str::<ServerForm>(twice).is_err());
    assert_eq!(paths(&json!({ "authMode": "delegation" })), ["/authMode"]);
    // Words that are none are mistakes like the others, and hide none of them.
    assert_eq!(
        paths(
            &json!({ "transport": "websocket", "authMode": "magic", "name": "", "headers": { "Host": "x" } })
        ),
        ["/transport", "/authMode", "/name", "/headers/Host"]
    );
}

#[test]
fn slugs_are_legal_free_and_never_change() {
    for slug in ["a", "A-1_b", &"s".repeat(100)] {
        assert_eq!(valid(&json!({ "slug": slug })).slug.as_deref(), Some(slug));
    }
    for slug in [
        "",
        "_a",
        "-a",
        "a b",
        "ä",
        &"s".repeat(101),
        "pubmed",
        "PubMed",
        "custom-0123456789ab",
        "a__b",
        "a_",
        "import",
        "export",
    ] {
        assert_eq!(paths(&json!({ "slug": slug }))[0], "/slug", "{slug}");
    }
    let known = Known { slug: Some("custom-0123456789ab".to_owned()), ..Known::default() };
    let slug = |changes: &Value| against(changes, &known, &[]);
    assert_eq!(slug(&json!({})).unwrap().slug, known.slug);
    assert_eq!(slug(&json!({ "slug": "custom-0123456789ab" })).unwrap().slug, known.slug);
    assert!(slug(&json!({ "slug": "other" })).is_err());
}

#[test]
fn names_and_times_have_their_bounds() {
    assert_eq!(valid(&json!({ "name": "ä".repeat(100) })).name.chars().count(), 100);
    assert_eq!(paths(&json!({ "name": "ä".repeat(101) })), ["/name"]);
    assert_eq!(valid(&json!({ "timeoutSeconds": 600 })).timeout, Duration::from_mins(10));
    for seconds in [json!(0), json!(601), json!(1.5), json!(-1)] {
        assert_eq!(paths(&json!({ "timeoutSeconds": seconds })), ["/timeoutSeconds"]);
    }
}

#[test]
fn headers_are_legal_and_not_ours() {
    for name in [
        "Host",
        "content-length",
        "Mcp-Session-Id",
        "MCP-Protocol-Version",
        "mcp-param-x",
        "Transfer-Encoding",
        "a b",
        "a:b",
        "",
        "ä",
    ] {
        assert_eq!(paths(&json!({ "headers": { name: "x" } })).len(), 1, "{name}");
    }
    for value in ["a\0", "a\r\nb", "\u{7f}", " a"] {
        assert_eq!(paths(&json!({ "headers": { "X-A": value } })), ["/headers/X-A"], "{value:?}");
    }
    assert_eq!(paths(&json!({ "headers": { "X-A": "1", "x-a": "2" } })), ["/headers/x-a"]);
    let many: serde_json::Map<String, Value> =
        (0..101).map(|index| (format!("X-{index}"), json!("v"))).collect();
    assert_eq!(paths(&json!({ "headers": many })), ["/headers"]);
    assert_eq!(paths(&json!({ "headers": { "X-A": "x".repeat(16_385) } })), ["/headers/X-A"]);
    let heavy: serde_json::Map<String, Value> =
        (0..5).map(|index| (format!("X-{index}"), json!("v".repeat(14_000)))).collect();
    assert_eq!(paths(&json!({ "headers": heavy })), ["/headers"]);
    valid(&json!({ "authMode": "shared_headers", "headers": { "Authorization": "Bearer x" } }));
}

#[test]
fn a_personal_mode_keeps_its_header_for_the_person() {
    for mode in ["bearer", "oauth"] {
        let found = paths(&json!({ "authMode": mode, "headers": { "AUTHORIZATION": "x" } }));
        assert_eq!(found, ["/headers/AUTHORIZATION"]);
    }
    let api_key = |header: &str, name: &str| json!({ "authMode": "api_key", "apiKeyHeader": header, "headers": { name: "x" } });
    assert_eq!(paths(&api_key("X-Api-Key", "x-api-key")), ["/headers/x-api-key"]);
    assert_eq!(
        valid(&api_key("X-Api-Key", "X-Other")).api_key_header.as_deref(),
        Some("X-Api-Key")
    );
    assert_eq!(paths(&json!({ "authMode": "api_key" })), ["/apiKeyHeader"]);
    assert_eq!(paths(&json!({ "authMode": "api_key", "apiKeyHeader": "Host" })), ["/apiKeyHeader"]);
}

#[test]
fn oauth_settings_hang_together() {
    let oauth = |settings: Value| json!({ "authMode": "oauth", "oauth": settings });
    valid(&json!({ "authMode": "oauth" }));
    assert_eq!(paths(&oauth(json!({ "clientSecret": "s" }))), ["/oauth/clientSecret"]);
    assert_eq!(paths(&oauth(json!({ "registration": "preregistered" }))), ["/oauth/clientId"]);
    for url in ["http://a.example/c.json", "https://a.example", "https://a.example/", "x"] {
        let found = paths(&oauth(json!({ "clientMetadataUrl": url })));
        assert_eq!(found, ["/oauth/clientMetadataUrl"], "{url}");
    }
    assert_eq!(paths(&oauth(json!({ "clientId": "c".repeat(4_097) }))), ["/oauth/clientId"]);
    assert_eq!(paths(&oauth(json!({ "scopes": ["a b"] }))), ["/oauth/scopes/0"]);
    assert_eq!(
        paths(&oauth(json!({ "clientId": "c", "clientSecret": null }))),
        ["/oauth/clientSecret"]
    );
    let server = valid(&oauth(json!({
        "clientId": "c", "clientSecret": "s", "issuer": "https://login.example.com",
        "clientMetadataUrl": "https://a.example/client.json", "scopes": ["read", "offline_access"],
    })));
    assert!(matches!(&server.client_secret, SecretEdit::Set(secret) if secret.expose() == "s"));
    assert!(!format!("{server:?}").contains("\"s\""));
}

#[test]
fn fields_of_the_other_transport_are_blanked() {
    let server = valid(&json!({ "command": "x", "args": ["y"], "cwd": "/z", "env": { "A": "b" } }));
    assert_eq!((server.command.as_str(), server.args.len(), server.cwd.as_str()), ("", 0, ""));
    assert_eq!(server.env, SecretEdits::default());
    let program = json!({ "transport": "stdio", "command": "/bin/x", "env": { "TOKEN": "a" },
        "headers": { "X": "y" } });
    let server = valid(&program);
    assert_eq!((server.url.as_str(), server.headers), ("", SecretEdits::default()));
    assert_eq!(server.env.names(), ["TOKEN"]);
}

#[test]
fn a_program_has_its_own_rules() {
    let stdio = |changes: Value| {
        let mut body = json!({ "transport": "stdio", "command": "/bin/x" });
        body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        body
    };
    assert_eq!(paths(&json!({ "transport": "stdio" })), ["/command"]);
    assert_eq!(paths(&stdio(json!({ "authMode": "bearer" }))), ["/authMode"]);
    assert_eq!(paths(&stdio(json!({ "cwd": format!("/{}", "c".repeat(4_096)) }))), ["/cwd"]);
    assert_eq!(paths(&stdio(json!({ "args": vec!["a"; 101] }))), ["/args"]);
    assert_eq!(paths(&stdio(json!({ "args": ["a".repeat(8_193)] }))), ["/args/0"]);
    for name in ["PATH", "LD_PRELOAD", "PYTHONPATH", "NODE_OPTIONS", "GIT_SSH", "1A", "A=B", ""] {
        assert_eq!(paths(&stdio(json!({ "env": { name: "x" } }))).len(), 1, "{name}");
    }
}

#[test]
fn a_variable_must_exist() {
    let error = validate(&json!({ "headers": { "X-A": "Bearer $TOKEN" } })).unwrap_err();
    let details = error.details.unwrap();
    assert_eq!(details["errors"][0]["path"], "/headers/X-A");
    assert!(details["errors"][0]["message"].as_str().unwrap().contains("$TOKEN"));
    valid(&json!({ "headers": { "X-A": "costs $$5 or 5$ or $5" } }));
}

#[test]
fn limits_have_ranges_and_one_pace() {
    let resolved =
        |form: Value| Governance::resolve(valid(&json!({ "governance": form })).governance);
    assert_eq!(resolved(json!({ "maxConcurrent": 256 })).max_concurrent, 256);
    assert_eq!(resolved(json!({ "maxQueueDepth": 0 })).max_queue_depth, 0);
    let paced = |rate: f64| resolved(json!({ "ratePerSecond": rate })).min_interval;
    assert_eq!(paced(3.0), Duration::from_millis(334));
    assert_eq!(paced(0.5), Duration::from_secs(2));
    assert_eq!(paced(5_000.0), Duration::from_millis(1));
    for (name, value) in [
        ("maxConcurrent", json!(257)),
        ("maxConcurrent", json!(1.5)),
        ("maxQueueDepth", json!(10_001)),
        ("queueTimeoutMs", json!(600_001)),
        ("minIntervalMs", json!(-1)),
        ("ratePerSecond", json!(0)),
        ("ratePerSecond", json!(-1)),
        ("ratePerSecond", json!(1e-9)),
        ("maxResponseBytes", json!(0)),
        ("maxResponseBytes", json!(268_435_457)),
    ] {
        let found = paths(&json!({ "governance": { name: value } }));
        assert_eq!(found, [format!("/governance/{name}")], "{value}");
    }
    let both = json!({ "governance": { "minIntervalMs": 5, "ratePerSecond": 5 } });
    assert_eq!(paths(&both), ["/governance/ratePerSecond"]);
}

#[test]
fn a_stored_form_that_is_out_of_range_by_now_is_brought_into_it() {
    let form = GovernanceForm {
        max_concurrent: Some(1e9),
        max_queue_depth: Some(-4.0),
        rate_per_second: Some(0.0),
        max_response_bytes: Some(f64::NAN),
        ..GovernanceForm::default()
    };
    let limits = Governance::resolve(Some(form));
    assert_eq!((limits.max_concurrent, limits.max_queue_depth), (256, 0));
    assert_eq!(limits.min_interval, Duration::from_hours(1));
    assert_eq!(limits.max_response_bytes, 5_000_000);
}
