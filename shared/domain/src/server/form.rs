//! What a client submits: POST and PUT are full replacements, unknown fields are refused.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
};

use serde::{Deserialize, Deserializer, de};

use super::{GovernanceForm, Registration};

/// The body of POST and PUT of a server; see [`ServerForm::validate`].
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServerForm {
    #[serde(default)]
    pub name: String,
    /// Left out: the stored one, or the id of a new server.
    pub slug: Option<String>,
    #[serde(default)]
    pub description: String,
    pub icon: Option<String>,
    #[serde(default)]
    pub tags: Vec<String>,
    /// A [`Transport`](super::Transport); as text, so that another word is a mistake like the others.
    #[serde(default)]
    pub transport: String,
    #[serde(default)]
    pub url: String,
    #[serde(default)]
    pub command: String,
    #[serde(default)]
    pub args: Vec<String>,
    #[serde(default)]
    pub cwd: String,
    #[serde(default)]
    pub env: SecretForm,
    #[serde(default)]
    pub headers: SecretForm,
    /// An [`AuthMode`](super::AuthMode).
    #[serde(default)]
    pub auth_mode: String,
    pub api_key_header: Option<String>,
    pub oauth: Option<OAuthForm>,
    /// Whole seconds; a fraction is refused by [`ServerForm::validate`], with the others.
    pub timeout_seconds: Option<f64>,
    #[serde(default)]
    pub enabled: bool,
    pub governance: Option<GovernanceForm>,
    /// The revision of the form that the client saw. Another one by now: `REVISION_CONFLICT`; left
    /// out: whatever stands is replaced. A new server has none.
    pub revision: Option<i64>,
}

/// See [`ServerForm`].
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OAuthForm {
    pub issuer: Option<String>,
    #[serde(default)]
    pub registration: Registration,
    #[serde(default)]
    pub client_id: String,
    /// Left out: deleted; `null`: kept; a string: replaced.
    #[serde(default, deserialize_with = "null_keeps")]
    pub client_secret: Option<SubmittedSecret>,
    #[serde(default)]
    pub scopes: Vec<String>,
    pub client_metadata_url: Option<String>,
}

/// A secret that stands in a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubmittedSecret {
    /// `null`.
    Keep,
    Value(SecretText),
}

/// Tells `null` from a member that is left out.
pub(crate) fn null_keeps<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SubmittedSecret>, D::Error> {
    let value = Option::<SecretText>::deserialize(deserializer)?;
    Ok(Some(value.map_or(SubmittedSecret::Keep, SubmittedSecret::Value)))
}

/// A secret that a client submits. It cannot be printed or serialised.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct SecretText(String);

impl SecretText {
    #[must_use]
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// For sealing and sending, nothing else.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// Names and values of env or headers; `null` keeps the stored value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretForm(BTreeMap<String, Option<SecretText>>);

impl SecretForm {
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Option<SecretText>)> {
        self.0.iter()
    }

    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(String, Option<SecretText>)> for SecretForm {
    fn from_iter<I: IntoIterator<Item = (String, Option<SecretText>)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl<'de> Deserialize<'de> for SecretForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(SecretFormVisitor)
    }
}

struct SecretFormVisitor;

impl<'de> de::Visitor<'de> for SecretFormVisitor {
    type Value = SecretForm;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of names with a string or null")
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<SecretForm, A::Error> {
        let mut entries = BTreeMap::new();
        while let Some((name, value)) = map.next_entry()? {
            // Which of two values was meant, nobody can say.
            let Entry::Vacant(entry) = entries.entry(name) else {
                return Err(de::Error::custom("a name stands twice in one object"));
            };
            entry.insert(value);
        }
        Ok(SecretForm(entries))
    }
}
