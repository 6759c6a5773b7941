//! Where a person goes on after signing in: a page of ours, whatever the link says.

use url::{Url, form_urlencoded};

use crate::paths;

/// Longer ones are none of ours.
const MOST: usize = 2_000;

/// `next` where it is a path of ours; nothing that a browser could read as another site.
pub(super) fn own(next: &str) -> Option<&str> {
    // Browsers take `\` for `/`, and drop tabs and line ends.
    let plain = next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if next.len() > MOST || !plain || !next.starts_with('/') || next.starts_with("//") {
        return None;
    }
    // The URL standard has the last word.
    let base = Url::parse("https://ours.invalid/").ok()?;
    let joined = base.join(next).ok()?;
    let stays = joined.origin() == base.origin() && !joined.path().starts_with("//");
    stays.then_some(next)
}

/// `place`, with where to go on from there.
pub(super) fn with_next(place: &str, next: &str) -> String {
    match own(next) {
        Some(next) if next != paths::HOME => {
            let encoded: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
            format!("{place}?next={encoded}")
        }
        _ => place.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_cannot_leave() {
        for ours in ["/", "/servers", "/questions/1?a=b&c=%2F%2Fevil.test#x"] {
            assert_eq!(own(ours), Some(ours));
        }
        for theirs in [
            "",
            "servers",
            "//evil.test",
            "///evil.test",
            "/\\evil.test",
            "\\\\evil.test",
            "/\t/evil.test",
            "/\n/evil.test",
            "https://evil.test",
            "https:evil.test",
            "javascript:alert(1)",
            "/..//evil.test",
            "/.//evil.test",
            "/%2e//evil.test",
            "/é",
        ] {
            assert_eq!(own(theirs), None, "{theirs:?}");
        }
        assert_eq!(own(&format!("/{}", "a".repeat(MOST))), None);
    }

    #[test]
    fn what_leaves_is_left_out() {
        assert_eq!(
            with_next("/sign-in", "/questions?after=1"),
            "/sign-in?next=%2Fquestions%3Fafter%3D1"
        );
        assert_eq!(with_next("/sign-in", "//evil.test"), "/sign-in");
        assert_eq!(with_next("/sign-in", "/"), "/sign-in");
    }
}
