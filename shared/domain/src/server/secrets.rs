//! What a submitted form does to the secrets that are there.

use std::{collections::BTreeMap, fmt};

use url::{Origin, Url};

use super::{SecretForm, SecretText, Transport};
use crate::{Code, Error, tool};

/// Names of stored secrets, each with the variables that its value refers to.
pub type KnownSecrets = BTreeMap<String, Vec<String>>;

/// What a form is measured against: the stored server's slug, where it is, and the names of its
/// secrets. A new server has none of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    pub slug: Option<String>,
    pub place: Option<Place>,
    pub env: KnownSecrets,
    pub headers: KnownSecrets,
    pub client_secret: bool,
}

/// Who receives a server's secrets. Where this changes, none may be kept: whoever redirects a server
/// must know what he sends there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Scheme, host and port (RFC 6454).
    Origin(Origin),
    /// A program: its command, arguments and working directory.
    Program(String, Vec<String>, String),
}

impl Place {
    /// `None` where the address is none.
    #[must_use]
    pub fn of(
        transport: Transport,
        url: &str,
        command: &str,
        args: &[String],
        cwd: &str,
    ) -> Option<Self> {
        match transport {
            Transport::Stdio => {
                Some(Self::Program(command.to_owned(), args.to_vec(), cwd.to_owned()))
            }
            Transport::Sse | Transport::Http => {
                Url::parse(url).ok().map(|url| Self::Origin(url.origin()))
            }
        }
    }
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
pub fn edit_secrets(existing: &KnownSecrets, submitted: &SecretForm) -> Result<SecretEdits, Error> {
    let mut edits = SecretEdits::default();
    for (name, value) in submitted.iter() {
        match value {
            Some(value) => {
                edits.set.insert(name.clone(), value.clone());
            }
            None if existing.contains_key(name) => edits.keep.push(name.clone()),
            None => return Err(Error::new(Code::InvalidInput, nothing_to_keep(name))),
        }
    }
    edits.delete = existing.keys().filter(|name| !submitted.contains(name)).cloned().collect();
    Ok(edits)
}

pub(super) fn nothing_to_keep(name: &str) -> String {
    format!("there is no value to keep under the name \"{}\"", tool::escaped(name, 80))
}
