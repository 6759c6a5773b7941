//! Which definition of a tool is the approved one, and what a discovery does to that.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    Definition, ToolProblem, UnusableTool, assign_ids,
    names::{hidden_id, shown, skeleton, suspicious},
};
use crate::{Code, Error, caller::names, ids::ToolId, json::Sha256Digest};

/// Whether agents see a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pin {
    /// The server's present definition is the approved one.
    Approved,
    /// It is another one, or was never approved: hidden until a person releases it.
    Quarantined,
    /// It cannot be used: hidden.
    Invalid,
}

names!(Pin, "pin", Approved => "approved", Quarantined => "quarantined", Invalid => "invalid");

/// A definition as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pinned {
    /// The JSON object as the server sent it.
    pub text: String,
    pub hash: Sha256Digest,
}

/// What is stored of a tool; switch and policy stand beside it and take no part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownTool {
    /// Stays what it is for as long as the server lists the name.
    pub tool_id: ToolId,
    pub original_name: String,
    /// The approved one; where none ever was, the same as `pending`.
    pub definition: Option<Pinned>,
    /// The server's present one where that is not approved.
    pub pending: Option<Pinned>,
    pub pin: Pin,
    /// Why it is not [`Pin::Approved`]; public words.
    pub problem: Option<String>,
    pub warnings: Vec<String>,
    /// No longer listed by the server. The pin is kept, so that it cannot come back changed unseen.
    pub removed: bool,
}

/// One row that a discovery changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolChange {
    Added(KnownTool),
    Changed(KnownTool),
    /// The server lists it no longer.
    Removed(ToolId),
}

/// What a discovery comes to; see [`reconcile`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Discovery {
    pub changes: Vec<ToolChange>,
    /// Of tools that have not even a name to be listed under.
    pub problems: Vec<ToolProblem>,
}

impl KnownTool {
    /// The definition that a person, or the first discovery, approved.
    #[must_use]
    pub fn approved(&self) -> Option<&Pinned> {
        let pending = self.pending.as_ref().map(|pending| pending.hash);
        self.definition.as_ref().filter(|definition| Some(definition.hash) != pending)
    }

    /// Releases the quarantined definition that the person saw; nothing to do where it is approved.
    ///
    /// `CONFLICT` where it is another one by now, or none is quarantined; `details` says which.
    pub fn approve(self, seen: Sha256Digest) -> Result<Self, Error> {
        let approved = self.definition.as_ref().is_some_and(|definition| definition.hash == seen);
        if self.pin == Pin::Approved && approved {
            return Ok(self);
        }
        match &self.pending {
            Some(pending) if self.pin == Pin::Quarantined && pending.hash == seen => {
                let definition = self.pending;
                Ok(Self { definition, pending: None, pin: Pin::Approved, problem: None, ..self })
            }
            _ => {
                let waits = self.pending.as_ref().filter(|_| self.pin == Pin::Quarantined);
                let details = json!({ "definitionHash": waits.map(|pending| pending.hash) });
                Err(Error::new(Code::Conflict, "this definition does not wait for approval")
                    .with_details(details))
            }
        }
    }

    fn new(tool_id: ToolId, original_name: &str) -> Self {
        Self {
            tool_id,
            original_name: original_name.to_owned(),
            definition: None,
            pending: None,
            // Until a definition was looked at.
            pin: Pin::Invalid,
            problem: None,
            warnings: Vec::new(),
            removed: false,
        }
    }

    /// Hidden with this definition as the present one, if there is any.
    fn withheld(self, pin: Pin, present: Option<Pinned>, problem: &ToolProblem) -> Self {
        self.hidden(pin, present, problem.to_string())
    }

    fn hidden(self, pin: Pin, present: Option<Pinned>, problem: String) -> Self {
        let definition = self.approved().cloned().or_else(|| present.clone());
        // Beside an approved definition the same one does not wait for anything.
        let pending = present
            .filter(|present| self.approved().is_none_or(|approved| approved.hash != present.hash));
        Self { definition, pending, pin, problem: Some(problem), removed: false, ..self }
    }

    fn released(self, present: Pinned) -> Self {
        let definition = Some(present);
        Self {
            definition,
            pending: None,
            pin: Pin::Approved,
            problem: None,
            removed: false,
            ..self
        }
    }
}

/// Compares what a server lists with what is known of it.
///
/// The first discovery approves. Later a changed definition is quarantined beside the approved one,
/// and released by itself when it is the approved one again; a new tool is approved where
/// `auto_approve_new`, else quarantined; a tool that is gone is marked. One unusable tool hides that
/// tool alone. A name that imitates another is quarantined even at the first discovery.
#[must_use]
pub fn reconcile(
    known: &[KnownTool],
    seen: Vec<Result<Definition, UnusableTool>>,
    auto_approve_new: bool,
    first_discovery: bool,
) -> Discovery {
    let (listed, problems) = with_names(seen);
    let names: Vec<String> = listed.iter().map(|(name, _)| name.clone()).collect();
    let rules = Rules {
        known: known.iter().map(|tool| (tool.original_name.as_str(), tool)).collect(),
        ids: known.iter().map(|tool| (&tool.tool_id, tool.original_name.as_str())).collect(),
        skeletons: skeletons(known, &names),
        trusting: first_discovery || auto_approve_new,
    };
    let mut done: HashSet<&str> = HashSet::new();
    let mut changes = Vec::new();
    for ((name, tool), id) in listed.into_iter().zip(assign_ids(&names)) {
        let Some(spelling) = names.iter().find(|listed| **listed == name) else { continue };
        if !done.insert(spelling) {
            continue;
        }
        let after = rules.settle(&name, tool, id);
        match rules.known.get(name.as_str()) {
            None => changes.push(ToolChange::Added(after)),
            Some(before) if **before != after => changes.push(ToolChange::Changed(after)),
            Some(_) => {}
        }
    }
    let gone = known.iter().filter(|tool| !tool.removed);
    let gone = gone.filter(|tool| !done.contains(tool.original_name.as_str()));
    changes.extend(gone.map(|tool| ToolChange::Removed(tool.tool_id.clone())));
    Discovery { changes, problems }
}

type Listed = (String, Result<Definition, UnusableTool>);

fn with_names(seen: Vec<Result<Definition, UnusableTool>>) -> (Vec<Listed>, Vec<ToolProblem>) {
    let mut named = Vec::new();
    let mut problems = Vec::new();
    for tool in seen {
        match &tool {
            Ok(definition) => named.push((definition.name.clone(), tool)),
            Err(UnusableTool { name: Some(name), .. }) => named.push((name.clone(), tool)),
            Err(UnusableTool { problem, .. }) => problems.push(problem.clone()),
        }
    }
    (named, problems)
}

/// All names of the server, by what they look like.
fn skeletons(known: &[KnownTool], names: &[String]) -> HashMap<String, Vec<String>> {
    let known = known.iter().filter(|tool| !tool.removed).map(|tool| &tool.original_name);
    let mut by_skeleton: HashMap<String, Vec<String>> = HashMap::new();
    for name in names.iter().chain(known) {
        by_skeleton.entry(skeleton(name)).or_default().push(name.clone());
    }
    by_skeleton
}

struct Rules<'a> {
    known: HashMap<&'a str, &'a KnownTool>,
    ids: HashMap<&'a ToolId, &'a str>,
    skeletons: HashMap<String, Vec<String>>,
    trusting: bool,
}

impl Rules<'_> {
    /// The row of one listed name after this discovery.
    fn settle(
        &self,
        name: &str,
        tool: Result<Definition, UnusableTool>,
        id: Result<ToolId, ToolProblem>,
    ) -> KnownTool {
        let id = id.and_then(|id| self.still_free(name, id));
        let row = match (self.known.get(name), &id) {
            (Some(known), _) => KnownTool { warnings: Vec::new(), ..(*known).clone() },
            (None, Ok(id)) => KnownTool::new(id.clone(), name),
            (None, Err(_)) => KnownTool::new(hidden_id(name), name),
        };
        let definition = match tool {
            Ok(definition) => definition,
            Err(unusable) => {
                let problem = id.err().unwrap_or(unusable.problem);
                return row.withheld(Pin::Invalid, unusable.definition, &problem);
            }
        };
        let warnings = definition.warnings.iter().map(ToString::to_string).collect();
        let row = KnownTool { warnings, ..row };
        let present = Pinned { text: definition.raw, hash: definition.hash };
        match id {
            Ok(_) => self.admit(row, present),
            Err(problem) => row.withheld(Pin::Invalid, Some(present), &problem),
        }
    }

    /// A new tool takes no id that stands for another one, gone or not: policies would go over.
    fn still_free(&self, name: &str, id: ToolId) -> Result<ToolId, ToolProblem> {
        match self.ids.get(&id) {
            Some(holder) if *holder != name && !self.known.contains_key(name) => {
                Err(ToolProblem::Collides(shown(holder)))
            }
            _ => Ok(id),
        }
    }

    fn admit(&self, row: KnownTool, present: Pinned) -> KnownTool {
        if let Some(approved) = row.approved() {
            return if approved.hash == present.hash {
                row.released(present)
            } else {
                let words = "the definition changed since it was approved";
                row.hidden(Pin::Quarantined, Some(present), words.to_owned())
            };
        }
        if let Some(problem) = self.imitates(&row.original_name) {
            return row.withheld(Pin::Quarantined, Some(present), &problem);
        }
        // Trust in new tools does not release one that was withheld before.
        if self.trusting && row.pin != Pin::Quarantined {
            return row.released(present);
        }
        let words = "the tool is new on a server that was approved without it";
        row.hidden(Pin::Quarantined, Some(present), words.to_owned())
    }

    fn imitates(&self, name: &str) -> Option<ToolProblem> {
        if let Some(problem) = suspicious(name) {
            return Some(problem);
        }
        let others = self.skeletons.get(&skeleton(name))?;
        let imitated = others.iter().filter(|other| *other != name).find(|other| {
            let known = self.known.get(other.as_str());
            let approved = known.is_some_and(|known| known.approved().is_some());
            // Of two new names the one that needs more than ASCII is the imitation.
            approved || other.is_ascii() || !name.is_ascii()
        })?;
        Some(ToolProblem::LooksLike(shown(imitated)))
    }
}
