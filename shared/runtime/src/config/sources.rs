//! Where a setting's text comes from, and what was wrong with it.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    path::{Path, PathBuf},
};

use super::{Settings, SettingsArgs};
use crate::terminal;

pub(super) const PREFIX: &str = "BAILIWICK_";

/// The settings, and whether the value is a secret. A secret can stand in a file of its own,
/// named by `<name>_file`, and is never shown.
const SETTINGS: &[(&str, bool)] = &[
    ("data_dir", false),
    ("database_url", true),
    ("owner_database_url", true),
    ("listen", false),
    ("public_url", false),
    ("allowed_hosts", false),
    ("trusted_proxies", false),
    ("encryption_keys", true),
    ("seal_key", true),
    ("object_store_url", false),
    ("egress_allow", false),
    ("extra_ca", false),
    ("contact", false),
    ("permission_wait_seconds", false),
    ("stdio", false),
    ("stdio_sandbox", false),
    ("stdio_readable", false),
    ("log_format", false),
    ("log", false),
];

/// Settings of the design that later versions have: an operator who sets one must not believe
/// that it works.
const LATER: &[&str] = &[
    "redis_url",
    "connect_to",
    "manifests",
    "metrics_listen",
    "ncbi_api_key",
    "ncbi_api_key_file",
];

/// Variables with our prefix that are no settings: other code reads them.
pub const READ_ELSEWHERE: &[&str] = &[
    "BAILIWICK_CONFIG",
    "BAILIWICK_URL",
    "BAILIWICK_TOKEN",
    "BAILIWICK_APPROVE_TOKEN",
    "BAILIWICK_PG_BIN",
];

/// One thing that is wrong, in words for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Name of the setting, as in the TOML file.
    pub setting: String,
    /// Where its value stands: `--listen`, `BAILIWICK_LISTEN` or a file's name.
    pub source: String,
    pub problem: String,
}

/// Everything that is wrong with the settings; `Display` is one line each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            let Mistake { setting, source, problem } = mistake;
            let line = format!("{setting} (from {source}): {problem}");
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{}", terminal::escape(&line))?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

/// All that was read, right or wrong.
#[derive(Debug, Clone)]
pub struct Reading {
    /// With the default in place of what is wrong.
    pub settings: Settings,
    /// The settings that were given: name, and where it stood.
    pub set: Vec<(String, String)>,
    /// Files that were read: the settings' own, and those that hold one secret.
    pub files: Vec<PathBuf>,
    pub mistakes: Mistakes,
}

#[derive(Clone)]
enum Origin {
    Flag,
    Variable,
    File(PathBuf),
}

impl Origin {
    /// How the operator wrote `name` there.
    fn spelled(&self, name: &str) -> String {
        match self {
            Self::Flag => format!("--{}", name.replace('_', "-")),
            Self::Variable => format!("{PREFIX}{}", name.to_ascii_uppercase()),
            Self::File(path) => path.display().to_string(),
        }
    }
}

/// A setting's text as it was found.
struct Found {
    text: String,
    /// How the operator wrote it.
    source: String,
}

/// The winning text of each setting, and the mistakes met on the way.
pub(super) struct Sources {
    found: HashMap<&'static str, Found>,
    mistakes: Vec<Mistake>,
    programs: Option<(String, Vec<toml::Value>)>,
    /// Files that were read: the settings' own, and those that hold one secret.
    files: Vec<PathBuf>,
}

impl Sources {
    pub(super) fn read(args: &SettingsArgs, env: impl Iterator<Item = (String, String)>) -> Self {
        let mut sources =
            Self { found: HashMap::new(), mistakes: Vec::new(), files: Vec::new(), programs: None };

        let flags = args.given().into_iter().map(|(name, value)| (name.to_owned(), value));
        sources.take(&Origin::Flag, flags.collect());

        let mut named_file = args.config.clone();
        let mut variables = BTreeMap::new();
        for (variable, value) in env {
            if value.is_empty() {
                continue;
            }
            if variable == "BAILIWICK_CONFIG" {
                named_file.get_or_insert(value.into());
            } else if let Some(name) = variable.strip_prefix(PREFIX)
                && !READ_ELSEWHERE.contains(&variable.as_str())
            {
                variables.insert(name.to_ascii_lowercase(), value);
            }
        }
        sources.take(&Origin::Variable, variables);

        if let Some(path) = named_file {
            match read_toml(&path) {
                Ok(table) => {
                    sources.files.push(path.clone());
                    let values = sources.texts(&path, table);
                    sources.take(&Origin::File(path), values);
                }
                Err(problem) => {
                    sources.push("config", path.display().to_string(), problem);
                }
            }
        }
        sources
    }

    /// The value of `name`, or `None` where it is not set or not as it should be.
    pub(super) fn parse<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        debug_assert!(SETTINGS.iter().any(|(known, _)| *known == name), "{name} is a setting");
        let found = self.found.get(name)?;
        match parse(&found.text) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.mistake(name, problem);
                None
            }
        }
    }

    /// Whether `name` is set, rightly or wrongly.
    pub(super) fn has(&self, name: &str) -> bool {
        self.found.contains_key(name)
    }

    pub(super) fn mistake(&mut self, name: &str, problem: impl Into<String>) {
        let source = self.found.get(name).map_or("default".to_owned(), |f| f.source.clone());
        self.push(name, source, problem.into());
    }

    pub(super) fn finish(self, settings: Settings) -> Reading {
        let settings = Settings { files: self.files.clone(), ..settings };
        let in_order = SETTINGS.iter().filter_map(|(name, _)| {
            Some(((*name).to_owned(), self.found.get(name)?.source.clone()))
        });
        let set = in_order.collect();
        Reading { settings, set, files: self.files, mistakes: Mistakes(self.mistakes) }
    }

    /// Takes what one source says, where no stronger source has spoken.
    fn take(&mut self, origin: &Origin, mut values: BTreeMap<String, String>) {
        for &(name, secret) in SETTINGS {
            let file_name = format!("{name}_file");
            let direct = values.remove(name);
            let named = if secret { values.remove(&file_name) } else { None };
            if direct.is_some() && named.is_some() {
                let problem = format!("is set twice: here and as {}", origin.spelled(&file_name));
                self.push(name, origin.spelled(name), problem);
                continue;
            }
            let (text, spelled) = match (direct, named) {
                (Some(text), _) => (text, origin.spelled(name)),
                (None, Some(path)) => {
                    let spelled = origin.spelled(&file_name);
                    match std::fs::read_to_string(&path) {
                        Ok(text) => {
                            self.files.push(path.into());
                            (text.trim().to_owned(), spelled)
                        }
                        Err(error) => {
                            self.push(name, spelled, format!("cannot read {path}: {error}"));
                            continue;
                        }
                    }
                }
                (None, None) => continue,
            };
            self.found.entry(name).or_insert(Found { text, source: spelled });
        }
        for name in values.into_keys() {
            let later = LATER.contains(&name.as_str());
            let problem = if later { "not supported by this version" } else { "no such setting" };
            let source = origin.spelled(&name);
            self.push(&name, source, problem.to_owned());
        }
    }

    /// `[[stdio.allow]]` as it stands in the file, and which file.
    pub(super) fn take_programs(&mut self) -> Option<(String, Vec<toml::Value>)> {
        self.programs.take()
    }

    /// The table `[stdio]`: its word, as the setting of that name, and its list.
    fn stdio(&mut self, path: &Path, table: toml::Table) -> Option<String> {
        let source = path.display().to_string();
        let mut word = None;
        for (name, value) in table {
            match (name.as_str(), value) {
                ("mode", toml::Value::String(text)) => word = Some(text),
                ("mode", _) => self.push("stdio.mode", source.clone(), "must be a text".to_owned()),
                ("allow", toml::Value::Array(entries)) => {
                    self.programs = Some((source.clone(), entries));
                }
                ("allow", _) => {
                    let problem = "must be written as [[stdio.allow]]".to_owned();
                    self.push("stdio.allow", source.clone(), problem);
                }
                _ => self.push(
                    &format!("stdio.{name}"),
                    source.clone(),
                    "no such setting".to_owned(),
                ),
            }
        }
        word
    }

    /// The file's values as texts: a list is written with commas, as in a variable.
    fn texts(&mut self, path: &Path, table: toml::Table) -> BTreeMap<String, String> {
        let mut values = BTreeMap::new();
        for (name, value) in table {
            if let ("stdio", toml::Value::Table(table)) = (name.as_str(), &value) {
                values.extend(self.stdio(path, table.clone()).map(|word| (name, word)));
            } else if let Some(text) = text(&value) {
                values.insert(name, text);
            } else {
                let problem = "must be a text, a whole number or a list of texts";
                self.push(&name, path.display().to_string(), problem.to_owned());
            }
        }
        values
    }

    pub(super) fn push(&mut self, setting: &str, source: String, problem: String) {
        self.mistakes.push(Mistake { setting: setting.to_owned(), source, problem });
    }
}

fn text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Array(items) => {
            let items: Option<Vec<&str>> = items.iter().map(toml::Value::as_str).collect();
            Some(items?.join(","))
        }
        _ => None,
    }
}

fn read_toml(path: &Path) -> Result<toml::Table, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
    // The parser's own `Display` quotes the line, which may hold a secret.
    text.parse::<toml::Table>().map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        format!("is not TOML, line {line}")
    })
}
