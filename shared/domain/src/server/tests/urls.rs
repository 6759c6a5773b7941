use serde_json::json;

use super::*;

fn accepted(url: &str, rules: &UrlRules) -> bool {
    let (stdio, variables) = (StdioMode::default(), Variables::default());
    let rules = FormRules { urls: rules, stdio: &stdio, only_tenant: true, variables: &variables };
    form(&json!({ "url": url })).validate(&rules, &Known::default()).is_ok()
}

#[test]
fn https_is_needed_but_for_loopback_and_listed_hosts() {
    let none = UrlRules::default();
    for url in [
        "https://mcp.example.com/mcp?x=1",
        "http://localhost:3000/mcp",
        "http://127.0.0.1/",
        "http://127.9.9.9:1/",
        "http://[::1]:8080/mcp",
        "http://app.localhost/",
        "https://10.0.0.1/",
        "https://münchen.example/",
    ] {
        assert!(accepted(url, &none), "{url}");
    }
    for url in [
        "http://example.com/",
        "http://10.0.0.1/",
        "http://localhost.example.com/",
        "http://[::2]/",
        "http://0.0.0.0/",
    ] {
        assert!(!accepted(url, &none), "{url}");
    }
    let rules = UrlRules {
        hosts: vec!["mcp.internal".to_owned(), "192.0.2.7".to_owned()],
        networks: vec!["10.0.0.0/8".parse().unwrap()],
    };
    for url in [
        "http://mcp.internal/x",
        "http://MCP.internal:80/",
        "http://10.1.2.3/",
        "http://192.0.2.7/",
    ] {
        assert!(accepted(url, &rules), "{url}");
    }
    assert!(!accepted("http://other.internal/", &rules));
}

#[test]
fn a_url_says_what_it_is() {
    for url in [
        "",
        "example.com",
        "/mcp",
        "ftp://example.com/",
        "https://",
        "https:///",
        "javascript:alert(1)",
        "https://user@example.com/",
        "https://user:pw@example.com/",
        "https://@example.com/",
        "https://example.com/#x",
        "https://example.com/#",
        "https://exa%6dple.com/",
        "https://example.com\\@evil.example/",
        " https://example.com/",
        "https://exam\nple.com/",
        "https://example.com/\u{0}",
        "https://example.com:99999/",
        "https://example.com/a b",
    ] {
        assert!(!accepted(url, &UrlRules::default()), "{url:?}");
    }
    assert!(accepted("https://example.com/a%20b?q=%23", &UrlRules::default()));
    let long = format!("https://example.com/{}", "x".repeat(8_192));
    assert!(!accepted(&long, &UrlRules::default()));
}
