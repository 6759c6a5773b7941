//! What a submitted form does to the secrets that are there.

use std::{collections::BTreeMap, fmt};

use super::{SecretForm, SecretText};
use crate::{Code, Error, tool};

/// What a form is measured against: the stored server's slug and the names of its secrets. A new
/// server has neither.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    pub slug: Option<String>,
    pub env: Vec<String>,
    pub headers: Vec<String>,
    pub client_secret: bool,
}

/// What a save does to a group of secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretEdits {
    /// Stay as they are.
    pub keep: Vec<String>,
    /// Written anew.
    pub set: BTreeMap<String, SecretText>,
    /// There before, and left out.
    pub delete: Vec<String>,
}

impl SecretEdits {
    #[must_use]
    pub fn changes_anything(&self) -> bool {
        !self.set.is_empty() || !self.delete.is_empty()
    }

    /// The names that exist afterwards, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.keep.iter().chain(self.set.keys()).map(String::as_str).collect();
        names.sort_unstable();
        names
    }
}

impl fmt::Debug for SecretEdits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretEdits")
            .field("keep", &self.keep)
            .field("set", &self.set.keys().collect::<Vec<_>>())
            .field("delete", &self.delete)
            .finish()
    }
}

/// What a save does to the one client secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SecretEdit {
    /// None before, none after.
    #[default]
    Absent,
    Keep,
    Set(SecretText),
    Delete,
}

/// The edit table: `null` keeps the value of exactly this name, a string (`""` too) replaces it,
/// what is left out is deleted. `null` for a name that does not exist refuses the whole save: there
/// is no renaming of an old secret.
pub fn edit_secrets(existing: &[String], submitted: &SecretForm) -> Result<SecretEdits, Error> {
    let mut edits = SecretEdits::default();
    for (name, value) in submitted.iter() {
        match value {
            Some(value) => {
                edits.set.insert(name.clone(), value.clone());
            }
            None if existing.contains(name) => edits.keep.push(name.clone()),
            None => return Err(Error::new(Code::InvalidInput, nothing_to_keep(name))),
        }
    }
    edits.delete = existing.iter().filter(|name| !submitted.contains(name)).cloned().collect();
    Ok(edits)
}

pub(super) fn nothing_to_keep(name: &str) -> String {
    format!("there is no value to keep under the name \"{}\"", tool::escaped(name, 80))
}
