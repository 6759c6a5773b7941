//! `WWW-Authenticate` as resource servers write it (RFC 9110, section 11.6.1; RFC 6750; RFC 9728).

use domain::limits;
use http::{HeaderMap, header};

/// What a Bearer challenge says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Challenge {
    /// URL of the resource metadata, as it stands there.
    pub resource_metadata: Option<String>,
    pub scopes: Vec<String>,
    /// `invalid_token`, `insufficient_scope`, …
    pub error: Option<String>,
}

impl Challenge {
    /// The Bearer (or `DPoP`) challenge of one header value; `None` where there is none. Of several the first that
    /// names its metadata, else the first.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        best(Self::all_of(text))
    }

    /// Of all `WWW-Authenticate` headers of an answer.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        best(Self::all(headers))
    }

    /// Every Bearer (or `DPoP`) challenge of an answer.
    #[must_use]
    pub fn all(headers: &HeaderMap) -> Vec<Self> {
        let values = headers.get_all(header::WWW_AUTHENTICATE).iter();
        values.filter_map(|value| value.to_str().ok()).flat_map(Self::all_of).collect()
    }

    /// RFC 6750, section 3.1.
    #[must_use]
    pub fn asks_for_scope(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }

    fn all_of(text: &str) -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        let mut bearer = false;
        for part in parts(text) {
            match part {
                Part::Scheme(scheme) => {
                    bearer = scheme.eq_ignore_ascii_case("bearer")
                        || scheme.eq_ignore_ascii_case("dpop");
                    if bearer {
                        found.push(Self::default());
                    }
                }
                Part::Param(name, value) => {
                    if let Some(challenge) = found.last_mut().filter(|_| bearer) {
                        challenge.take(&name, value);
                    }
                }
            }
        }
        found
    }

    fn take(&mut self, name: &str, value: String) {
        match name {
            "resource_metadata" if !value.is_empty() => {
                self.resource_metadata.get_or_insert(value);
            }
            "scope" if self.scopes.is_empty() => {
                let scopes = value.split_ascii_whitespace().filter(|scope| is_scope(scope));
                let scopes = scopes.take(limits::OAUTH_SCOPES.size());
                self.scopes = scopes.map(str::to_owned).collect();
            }
            "error" => {
                self.error.get_or_insert(value);
            }
            _ => {}
        }
    }
}

/// Whether an answer asks for more rights than the token has.
pub(crate) fn asks_for_scope(headers: &HeaderMap) -> bool {
    Challenge::all(headers).iter().any(Challenge::asks_for_scope)
}

/// `scope-token` of RFC 6749, section 3.3, no longer than anybody's are.
fn is_scope(text: &str) -> bool {
    text.len() <= limits::OAUTH_SCOPE_CHARS.size()
        && text.bytes().all(|byte| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e))
}

fn best(found: Vec<Challenge>) -> Option<Challenge> {
    let pointing = found.iter().position(|one| one.resource_metadata.is_some());
    found.into_iter().nth(pointing.unwrap_or(0))
}

enum Part {
    Scheme(String),
    /// Name in lower case.
    Param(String, String),
}

/// Schemes and parameters in order. What is neither (a `token68`, garbage) is passed over.
fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|char: char| char == ',' || char.is_ascii_whitespace());
        let Some(first) = rest.chars().next() else { return parts };
        let end = rest.find(|char: char| !is_token(char)).unwrap_or(rest.len());
        if end == 0 {
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (name, after) = rest.split_at(end);
        let unspaced = after.trim_start();
        // "a = b" is allowed; a scheme has no sign of equality behind it.
        let Some(value) = unspaced.strip_prefix('=') else {
            parts.push(Part::Scheme(name.to_owned()));
            rest = after;
            continue;
        };
        let (value, after) = value_of(value.trim_start());
        parts.push(Part::Param(name.to_ascii_lowercase(), value));
        rest = after;
    }
}

/// A quoted string without its quotes, or everything up to a comma or space (many servers do not quote URLs).
fn value_of(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(|char: char| char == ',' || char.is_ascii_whitespace());
        let (value, rest) = text.split_at(end.unwrap_or(text.len()));
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            _ => value.push(char),
        }
    }
    (value, "")
}

fn is_token(char: char) -> bool {
    char.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(char)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Option<String>, String, Option<String>) {
        let challenge = Challenge::parse(text).expect("a challenge");
        (challenge.resource_metadata, challenge.scopes.join(" "), challenge.error)
    }

    #[test]
    fn a_challenge_is_read_as_servers_write_it() {
        let url = || Some("https://a.test/.well-known/oauth-protected-resource".to_owned());
        for text in [
            r#"Bearer resource_metadata="https://a.test/.well-known/oauth-protected-resource", scope="a b", error="insufficient_scope""#,
            r#"bearer  scope = "a b" ,error=insufficient_scope,, resource_metadata=https://a.test/.well-known/oauth-protected-resource"#,
            r#"Basic realm="x, Bearer y", Bearer error="insufficient_scope", error_description="needs scope=\"z\" or resource_metadata=\"https://evil.test\"", SCOPE="a b", Resource_Metadata="https://a.test/.well-known/oauth-protected-resource""#,
        ] {
            let expected = (url(), "a b".to_owned(), Some("insufficient_scope".to_owned()));
            assert_eq!(parsed(text), expected, "{text}");
        }
    }

    #[test]
    fn the_error_of_a_challenge_asks_for_scopes_and_no_other_word_does() {
        let asks = |text: &str| {
            asks_for_scope(&HeaderMap::from_iter([(
                header::WWW_AUTHENTICATE,
                text.parse().unwrap(),
            )]))
        };
        assert!(asks(r#"Bearer error="insufficient_scope", scope="a""#));
        assert!(asks(
            r#"Bearer resource_metadata="https://a.test", DPoP error=insufficient_scope"#
        ));
        for not in [
            r#"Bearer error="invalid_token", error_description="not insufficient_scope""#,
            r#"Bearer error="insufficient_scopes""#,
            r#"Basic realm="insufficient_scope""#,
            r#"Basic error="insufficient_scope""#,
        ] {
            assert!(!asks(not), "{not}");
        }
    }

    #[test]
    fn what_is_no_scope_is_passed_over() {
        let long = "x".repeat(limits::OAUTH_SCOPE_CHARS.size() + 1);
        let text = format!(r#"Bearer scope="a {long} b\\c d\"e f""#);
        assert_eq!(parsed(&text).1, "a f");
        let many: Vec<String> =
            (0..=limits::OAUTH_SCOPES.size()).map(|n| format!("s{n}")).collect();
        let many = Challenge::parse(&format!(r#"Bearer scope="{}""#, many.join(" "))).unwrap();
        assert_eq!(many.scopes.len(), limits::OAUTH_SCOPES.size());
    }

    #[test]
    fn of_several_challenges_the_one_with_metadata_is_taken() {
        let two = r#"Bearer realm="x", Bearer resource_metadata="https://a.test/m""#;
        assert_eq!(parsed(two).0.as_deref(), Some("https://a.test/m"));
        assert_eq!(parsed("Bearer"), (None, String::new(), None));
        for none in ["", "Basic realm=\"x\"", "Negotiate YII=", ",,=\"", "Basic scope=\"a\""] {
            assert_eq!(Challenge::parse(none), None, "{none}");
        }
        assert_eq!(parsed("Bearer scope=\"a").1, "a", "an open quote ends with the text");
    }
}
