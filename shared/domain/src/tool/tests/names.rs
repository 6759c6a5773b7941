use proptest::prelude::*;

use super::super::*;
use crate::ids::{ServerId, ToolId};

fn ids(names: &[&str]) -> Vec<Result<ToolId, ToolProblem>> {
    assign_ids(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
}

#[test]
fn a_legal_name_is_the_id_and_others_are_normalised() {
    // sha256("get-weather.now") begins with these digits.
    assert_eq!(
        ids(&["echo", "get-weather.now"]),
        [Ok("echo".into()), Ok("get_weather_now_adfb934d".into()),]
    );
    let long = "a".repeat(37);
    let id = ids(&[&long]).remove(0).unwrap();
    assert!(id.as_str().starts_with(&format!("{}_", "a".repeat(27))), "{id}");
    assert_eq!(id.as_str().len(), 36);
    assert_eq!(ids(&[&"a".repeat(36)]), [Ok(ToolId("a".repeat(36)))]);
}

#[test]
fn reserved_names_are_normalised() {
    let id = ids(&["completion"]).remove(0).unwrap();
    assert!(id.as_str().starts_with("completion_"), "{id}");
}

#[test]
fn a_collision_hides_both_and_says_so() {
    let normalised = ids(&["a.b"]).remove(0).unwrap();
    let found = ids(&["a.b", "other", normalised.as_str()]);
    assert_eq!(found[0], Err(ToolProblem::Collides(normalised.to_string())));
    assert_eq!(found[1], Ok("other".into()));
    assert_eq!(found[2], Err(ToolProblem::Collides("a.b".to_owned())));
}

#[test]
fn a_name_listed_twice_hides_both() {
    let found = ids(&["echo", "echo", "other"]);
    assert_eq!(found[0], Err(ToolProblem::ListedTwice("echo".to_owned())));
    assert_eq!(found[1], found[0]);
    assert!(found[2].is_ok());
}

#[test]
fn the_agent_name_takes_the_slug_where_it_is_short() {
    let id = ServerId::from("custom-0123456789ab");
    let tool = ToolId("t".repeat(36));
    assert_eq!(agent_name("files", &id, &"read".into()), "mcp__files__read");
    let longest = agent_name(&"s".repeat(21), &id, &tool);
    assert_eq!(longest.len(), 64);
    assert!(agent_name(&"s".repeat(22), &id, &tool).starts_with("mcp__custom-0123456789ab__"));
}

#[test]
fn look_alikes_are_found() {
    for (one, other) in [
        ("read_file", "rеad_file"),
        ("read_file", "ｒead_file"),
        ("read_file", "read_\u{200b}file"),
        ("list1", "listl"),
        ("GET0", "GETO"),
        ("scope", "ѕсоре"),
        ("modern", "modem"),
        ("e-mail", "e‐mail"),
        ("math", "𝗆ath"),
    ] {
        assert!(looks_alike(one, other), "{one} {other}");
    }
    for (one, other) in [("read", "write"), ("read", "read"), ("get", "Get"), ("a1", "a2")] {
        assert!(!looks_alike(one, other), "{one} {other}");
    }
}

#[test]
fn a_name_that_imitates_is_escaped_and_an_honest_one_is_not() {
    for honest in
        ["read_file", "get-weather.now", "größe", "検索", "検索search", "поиск", "tool 🙂", "a/b:c"]
    {
        assert_eq!(display_name(honest), honest);
    }
    for (name, shown) in [
        ("rеad", "r\\u{435}ad"),
        ("ѕсоре", "\\u{455}\\u{441}\\u{43e}\\u{440}\\u{435}"),
        ("a\u{202e}b", "a\\u{202e}b"),
        ("a\u{200b}b", "a\\u{200b}b"),
        ("a\nb", "a\\u{a}b"),
        ("ｒead", "\\u{ff52}ead"),
    ] {
        assert_eq!(display_name(name), shown);
    }
}

#[test]
fn visible_text_loses_what_hides() {
    let hidden = "a\u{200b}b\u{202e}c\u{e0041}d\u{7}e\nf\tg\u{feff}h\u{2066}i\u{1b}[31m";
    assert_eq!(visible_text(hidden), "abcde\nf\tghi[31m");
    assert_eq!(visible_text("größer 日本 🙂"), "größer 日本 🙂");
    let long = "ä".repeat(5_000);
    let cut = visible_text(&long);
    assert_eq!(cut.len(), 4_096);
    assert!(visible_text(&format!("x{long}")).len() == 4_095);
}

#[test]
fn a_peers_text_is_escaped_and_bounded() {
    assert_eq!(escaped("a\u{202e}b\nc", 80), "a\\u{202e}b\\u{a}c");
    assert_eq!(escaped("rеad", 80), "r\\u{435}ad");
    assert_eq!(escaped("abcdef", 4), "abcd…");
}

proptest! {
    #[test]
    fn ids_are_legal_and_independent_of_order(
        names in prop::collection::vec(".{1,60}|[a-z_.]{1,4}", 1..12),
    ) {
        let assigned = assign_ids(&names);
        for id in assigned.iter().flatten() {
            prop_assert!((1..=36).contains(&id.as_str().len()));
            prop_assert!(id.as_str().bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
        }
        let mut one: Vec<_> = names.iter().cloned().zip(assigned).collect();
        let reversed: Vec<String> = names.iter().rev().cloned().collect();
        let mut other: Vec<_> = reversed.iter().cloned().zip(assign_ids(&reversed)).collect();
        let key = |(name, id): &(String, Result<ToolId, ToolProblem>)| (name.clone(), format!("{id:?}"));
        one.sort_by_key(key);
        other.sort_by_key(key);
        prop_assert_eq!(one, other);
    }

    #[test]
    fn visible_text_is_a_fixed_point(text in "\\PC{0,80}|.{0,80}") {
        let once = visible_text(&text);
        prop_assert_eq!(visible_text(&once), once);
    }
}
