//! Ids of tools, the names that agents see, and names that imitate others.

use std::collections::HashMap;

use unicode_normalization::UnicodeNormalization;

use super::{ToolProblem, escaped, text::is_hidden};
use crate::{
    ids::{ServerId, ToolId},
    json::Sha256Digest,
    limits,
};

/// What the broker calls by these names is no tool (governance, "The one path of every tool call").
const RESERVED: &[&str] = &["resource.read", "prompt.get", "completion"];

/// Of a name that becomes an id: this many characters, then `_` and 8 digits of its digest.
const KEPT_CHARS: usize = 27;

/// The ids of all tools of one server, in the order of `names`; what the order is makes no
/// difference.
///
/// The original name where it may stand as it is, else its normalised form. Two names with one id
/// are both refused, and so is a name listed twice: nobody could tell which of them a policy, a
/// grant or a call means.
#[must_use]
pub fn assign_ids(names: &[String]) -> Vec<Result<ToolId, ToolProblem>> {
    let ids: Vec<String> = names.iter().map(|name| id_of(name)).collect();
    let mut holders: HashMap<&str, Vec<&String>> = HashMap::new();
    for (id, name) in ids.iter().zip(names) {
        holders.entry(id).or_default().push(name);
    }
    ids.iter()
        .zip(names)
        .map(|(id, name)| {
            let holders = &holders[id.as_str()];
            // The least of the others, so that the words do not depend on the order either.
            match holders.iter().filter(|other| **other != name).min() {
                Some(other) => Err(ToolProblem::Collides(shown(other))),
                None if holders.len() > 1 => Err(ToolProblem::ListedTwice(shown(name))),
                None => Ok(ToolId(id.clone())),
            }
        })
        .collect()
}

/// The name that agents see: `mcp__<source>__<toolId>`, source = the slug where it is short enough,
/// else the id. At most [`limits::AGENT_NAME_CHARS`].
#[must_use]
pub fn agent_name(slug: &str, id: &ServerId, tool: &ToolId) -> String {
    let short = slug.len() <= limits::SLUG_IN_TOOL_NAME_CHARS.size();
    let source = if short { slug } else { id.as_str() };
    format!("mcp__{source}__{tool}")
}

fn id_of(name: &str) -> String {
    let stands = is_legal(name) && !RESERVED.contains(&name);
    if stands { name.to_owned() } else { normalised(name, KEPT_CHARS, 8) }
}

/// The id under which a tool is shown that has none of its own.
pub(super) fn hidden_id(name: &str) -> ToolId {
    ToolId(normalised(name, 19, 16))
}

fn normalised(name: &str, kept: usize, digits: usize) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let start: String = name.chars().map(legal).take(kept).collect();
    let digest = Sha256Digest::of(name.as_bytes()).to_string();
    format!("{start}_{}", &digest[..digits])
}

fn is_legal(name: &str) -> bool {
    (1..=limits::TOOL_ID_CHARS.size()).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A name of a peer in words of ours.
pub(super) fn shown(name: &str) -> String {
    escaped(name, 80)
}

/// Whether two different names are hard to tell apart on a screen.
#[must_use]
pub fn looks_alike(one: &str, other: &str) -> bool {
    one != other && skeleton(one) == skeleton(other)
}

/// What is wrong with a name by itself, whatever else the server lists.
pub(super) fn suspicious(name: &str) -> Option<ToolProblem> {
    if name.chars().any(|c| is_hidden(c) || c == '\n' || c == '\t') {
        return Some(ToolProblem::HidesCharacters(shown(name)));
    }
    let mut scripts = name.chars().filter_map(script);
    let first = scripts.next()?;
    scripts.any(|script| script != first).then(|| ToolProblem::MixesScripts(shown(name)))
}

#[derive(PartialEq, Eq)]
enum Script {
    Latin,
    Greek,
    Cyrillic,
    Armenian,
    Cherokee,
}

/// The script of a letter, of those whose letters are taken for each other (UTS 39).
fn script(c: char) -> Option<Script> {
    match c {
        'a'..='z'
        | 'A'..='Z'
        | '\u{c0}'..='\u{24f}'
        | '\u{1e00}'..='\u{1eff}'
        | '\u{ff21}'..='\u{ff5a}' => Some(Script::Latin),
        '\u{370}'..='\u{3ff}' | '\u{1f00}'..='\u{1fff}' => Some(Script::Greek),
        '\u{400}'..='\u{52f}' | '\u{1c80}'..='\u{1c8f}' | '\u{a640}'..='\u{a69f}' => {
            Some(Script::Cyrillic)
        }
        '\u{531}'..='\u{58f}' => Some(Script::Armenian),
        '\u{13a0}'..='\u{13ff}' | '\u{ab70}'..='\u{abbf}' => Some(Script::Cherokee),
        _ => None,
    }
}

/// A name with everything that looks alike made the same: compatibility forms (NFKC: full width,
/// mathematical letters, ligatures), letters of other scripts, digits that are taken for letters,
/// characters that are not seen.
pub(super) fn skeleton(name: &str) -> String {
    name.nfkc().filter(|c| !is_hidden(*c)).map(fold).collect()
}

/// A modest part of the confusables of UTS 39: what imitates ASCII letters.
fn fold(c: char) -> char {
    match c {
        '0' | 'О' | 'Ο' | 'Օ' => 'O',
        'о' | 'ο' | 'օ' => 'o',
        '1' | 'I' | 'І' | 'Ι' | 'Ӏ' | 'ӏ' => 'l',
        'і' | 'ι' => 'i',
        'А' | 'Α' => 'A',
        'а' | 'α' => 'a',
        'В' | 'Β' => 'B',
        'С' | 'Ϲ' => 'C',
        'с' | 'ϲ' => 'c',
        'ԁ' => 'd',
        'Е' | 'Ε' => 'E',
        'е' | 'ε' => 'e',
        'ɡ' | 'ց' => 'g',
        'Н' | 'Η' => 'H',
        'һ' | 'հ' => 'h',
        'Ј' => 'J',
        'ј' | 'ϳ' => 'j',
        'К' | 'Κ' => 'K',
        'к' | 'κ' => 'k',
        'М' | 'Μ' => 'M',
        'Ν' => 'N',
        'ո' => 'n',
        'Р' | 'Ρ' => 'P',
        'р' | 'ρ' => 'p',
        'ԛ' | 'զ' => 'q',
        'Ѕ' => 'S',
        'ѕ' => 's',
        'Т' | 'Τ' => 'T',
        'ս' | 'υ' => 'u',
        'ν' | 'ѵ' => 'v',
        'Ԝ' => 'W',
        'ԝ' | 'ω' => 'w',
        'Х' | 'Χ' => 'X',
        'х' | 'χ' => 'x',
        'У' | 'Υ' | 'Ү' => 'Y',
        'у' | 'γ' | 'ү' => 'y',
        'Ζ' => 'Z',
        '‐' | '‑' | '‒' | '–' | '—' | '−' => '-',
        _ => c,
    }
}
