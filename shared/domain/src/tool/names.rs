//! Ids of tools, the names that agents see, and names that imitate others.

use std::collections::HashMap;

use unicode_normalization::UnicodeNormalization;
use unicode_security::{RestrictionLevel, RestrictionLevelDetection};

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

/// A name of a peer on a screen: one that hides or imitates something is escaped, any other stands as
/// it is.
#[must_use]
pub fn display_name(name: &str) -> String {
    if suspicious(name).is_some() { shown(name) } else { name.to_owned() }
}

/// What is wrong with a name by itself, whatever else the server lists.
pub(super) fn suspicious(name: &str) -> Option<ToolProblem> {
    if name.is_ascii() && !name.chars().any(char::is_control) {
        return None;
    }
    if name.chars().any(|c| is_hidden(c) || c == '\n' || c == '\t') {
        return Some(ToolProblem::HidesCharacters(shown(name)));
    }
    let letters: String = name.nfkc().filter(|c| c.is_alphabetic()).collect();
    // One script, or Latin with one other that is not taken for it (UTS 39, 5.2).
    if !letters.check_restriction_level(RestrictionLevel::ModeratelyRestrictive) {
        return Some(ToolProblem::MixesScripts(shown(name)));
    }
    // Letters of one other script may spell a word in ours.
    let skeleton = skeleton(name);
    (!name.is_ascii() && skeleton.is_ascii()).then(|| ToolProblem::LooksLike(shown(&skeleton)))
}

/// A name with everything that looks alike made the same: compatibility forms (NFKC: full width,
/// mathematical letters, ligatures), characters that are not seen, and the confusables of UTS 39.
pub(super) fn skeleton(name: &str) -> String {
    let visible: String = name.nfkc().filter(|c| !is_hidden(*c)).collect();
    unicode_security::skeleton(&visible).collect()
}
