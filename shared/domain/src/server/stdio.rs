//! Which programs may run on our host (design: connections, "stdio").
//!
//! The operator says it, never a tenant: nothing, listed programs, or any. The rule is applied when a
//! server is saved and once more when its program is started.

use std::fmt;

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use crate::{Code, Error, limits, tool};

/// What the operator permits.
#[derive(Debug, Clone, Default)]
pub enum StdioMode {
    #[default]
    Off,
    Allowlist(Vec<AllowedProgram>),
    /// Whatever a superadmin configures.
    Any,
}

/// One entry of the operator's list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AllowedProgram {
    /// What it is called where a superadmin picks it.
    pub name: String,
    /// Absolute path of the executable.
    pub command: String,
    /// One for each argument, in order.
    #[serde(default)]
    pub args: Vec<ArgPattern>,
    /// The working directory, absolute. `None`: the server must not name one; the program starts in
    /// its private home.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Names of variables that a server may give it.
    #[serde(default)]
    pub env: Vec<String>,
    /// Absolute paths of directories and files that it may change.
    #[serde(default)]
    pub writable: Vec<String>,
}

/// What one argument may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ArgPattern {
    Literal(String),
    Matching {
        matches: Pattern,
    },
    /// Any number of further arguments; only as the last pattern.
    Rest {
        rest: Pattern,
    },
}

/// A regular expression for the whole of an argument.
#[derive(Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern {
    written: String,
    regex: Regex,
}

/// What is to be run, as far as it can be judged: values of variables take no part.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub command: &'a str,
    pub args: &'a [String],
    /// Empty: none.
    pub cwd: &'a str,
    /// Names.
    pub env: &'a [&'a str],
}

/// One thing that is wrong: a JSON pointer into the server's form, and words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    pub path: String,
    pub words: String,
}

impl StdioMode {
    /// Gives the entry that permits the program; `None` where any program may run. Otherwise says
    /// everything that is wrong with it, in the order of the form.
    pub fn check(&self, asked: &Asked<'_>) -> Result<Option<&AllowedProgram>, Vec<Mistake>> {
        let mut mistakes = legal(asked);
        let entries = match self {
            Self::Off => {
                mistakes.insert(0, mistake("/transport", "stdio is switched off here"));
                return Err(mistakes);
            }
            Self::Any if mistakes.is_empty() => return Ok(None),
            Self::Any => return Err(mistakes),
            Self::Allowlist(entries) => entries,
        };
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        // Several entries may name one command. The one that comes nearest is reported.
        let mut nearest: Option<Vec<Mistake>> = None;
        for entry in entries.iter().filter(|entry| entry.command == asked.command) {
            let found = entry.mistakes(asked);
            if found.is_empty() {
                return Ok(Some(entry));
            }
            if nearest.as_ref().is_none_or(|nearest| found.len() < nearest.len()) {
                nearest = Some(found);
            }
        }
        Err(nearest.unwrap_or_else(|| {
            vec![mistake("/command", "is not among the programs that the operator listed")]
        }))
    }

    /// The same for a program about to be started: `SERVER_MISCONFIGURED`.
    pub fn require(&self, asked: &Asked<'_>) -> Result<Option<&AllowedProgram>, Error> {
        self.check(asked).map_err(|mistakes| {
            let words = mistakes.first().map_or_else(String::new, ToString::to_string);
            Error::new(
                Code::ServerMisconfigured,
                format!("the server's program may not run: {words}"),
            )
        })
    }
}

impl AllowedProgram {
    /// Refuses (`INVALID_INPUT`) an entry that could never be meant: no absolute command, a `rest`
    /// that is not last, a variable that steers loaders.
    pub fn validate(&self) -> Result<(), Error> {
        let wrong = |words: String| {
            let name = tool::escaped(&self.name, 60);
            Err(Error::new(Code::InvalidInput, format!("the program {name:?}: {words}")))
        };
        if self.name.trim().is_empty() {
            return Err(Error::new(Code::InvalidInput, "a listed program has no name"));
        }
        let paths = self.cwd.iter().chain(&self.writable).chain([&self.command]);
        if let Some(path) = paths.into_iter().find(|path| !is_plain_path(path)) {
            let path = tool::escaped(path, 100);
            return wrong(format!("{path:?} is not a plain absolute path"));
        }
        let before_last = self.args.split_last().map_or(&[][..], |(_, before)| before);
        if before_last.iter().any(|pattern| matches!(pattern, ArgPattern::Rest { .. })) {
            return wrong("only its last argument can be `rest`".to_owned());
        }
        match self.env.iter().find(|name| steers(name)) {
            Some(name) => {
                let name = tool::escaped(name, 60);
                wrong(format!("{name} steers loaders or interpreters and may not be set"))
            }
            None => Ok(()),
        }
    }

    fn mistakes(&self, asked: &Asked<'_>) -> Vec<Mistake> {
        let mut mistakes = self.argument_mistakes(asked.args);
        if asked.cwd != self.cwd.as_deref().unwrap_or_default() && !asked.cwd.is_empty() {
            mistakes.push(mistake("/cwd", "is not the directory that the operator listed"));
        }
        for name in asked.env.iter().filter(|name| !self.env.iter().any(|one| one == *name)) {
            let words = "is not among the variables that the operator listed for this program";
            mistakes.push(mistake(variable_path(name), words));
        }
        mistakes
    }

    fn argument_mistakes(&self, args: &[String]) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let (fixed, rest) = match self.args.split_last() {
            Some((ArgPattern::Rest { rest }, fixed)) => (fixed, Some(rest)),
            _ => (self.args.as_slice(), None),
        };
        for (index, argument) in args.iter().enumerate() {
            let permitted = match fixed.get(index) {
                Some(ArgPattern::Literal(literal)) => literal == argument,
                Some(
                    ArgPattern::Matching { matches: pattern } | ArgPattern::Rest { rest: pattern },
                ) => pattern.fits(argument),
                None => rest.is_some_and(|rest| rest.fits(argument)),
            };
            if !permitted {
                let words = "is not what the operator listed for this program";
                mistakes.push(mistake(format!("/args/{index}"), words));
            }
        }
        if args.len() < fixed.len() {
            let words = format!("must be {} arguments for this program", fixed.len());
            mistakes.push(mistake("/args", words));
        }
        mistakes
    }
}

impl Pattern {
    /// Refuses (`INVALID_INPUT`) what is no regular expression, or one that grows too large.
    pub fn new(written: impl Into<String>) -> Result<Self, Error> {
        let written = written.into();
        let compile = |text: &str| {
            RegexBuilder::new(text).size_limit(limits::REGEX_BYTES.size()).build().map_err(
                |error| {
                    Error::new(Code::InvalidInput, "a pattern is no regular expression")
                        .because(error)
                },
            )
        };
        // Alone first: `a)|(b` would become one by the anchors.
        compile(&written)?;
        let regex = compile(&format!(r"\A(?:{written})\z"))?;
        Ok(Self { written, regex })
    }

    /// A path that climbs (`..`) never fits: who writes `/srv/data/.*` means what is below it.
    fn fits(&self, argument: &str) -> bool {
        self.regex.is_match(argument) && !argument.split('/').any(|segment| segment == "..")
    }
}

impl TryFrom<String> for Pattern {
    type Error = Error;

    fn try_from(written: String) -> Result<Self, Error> {
        Self::new(written)
    }
}

impl Serialize for Pattern {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.written)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.written, f)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl Eq for Pattern {}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.path.trim_start_matches('/').replace('/', " ");
        write!(f, "{field} {}", self.words)
    }
}

/// What no mode permits.
fn legal(asked: &Asked<'_>) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    if !is_plain_path(asked.command) {
        mistakes.push(mistake("/command", "must be a plain absolute path"));
    }
    for (index, argument) in asked.args.iter().enumerate() {
        if argument.contains('\0') {
            mistakes.push(mistake(format!("/args/{index}"), "must hold no NUL"));
        }
    }
    if !asked.cwd.is_empty() && !is_plain_path(asked.cwd) {
        mistakes.push(mistake("/cwd", "must be a plain absolute path"));
    }
    for name in asked.env {
        if name.is_empty() || name.contains(['=', '\0']) {
            mistakes.push(mistake(variable_path(name), "is no variable name"));
        } else if steers(name) {
            let words = "steers loaders or interpreters and may not be set";
            mistakes.push(mistake(variable_path(name), words));
        }
    }
    mistakes
}

/// Absolute, and the same to every reader: no `.`, `..` or empty segments, no NUL.
fn is_plain_path(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|rest| {
        !rest.contains('\0') && rest.split('/').all(|segment| !matches!(segment, "" | "." | ".."))
    })
}

/// Whether a variable makes a loader, a shell or an interpreter run or read something else than the
/// listed program, or is one that we set. No case: npm reads its own in any.
#[must_use]
pub fn steers(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "BASHOPTS",
        "BASH_ENV",
        "CDPATH",
        "CLASSPATH",
        "ELECTRON_RUN_AS_NODE",
        "ENV",
        "GCONV_PATH",
        "GLIBC_TUNABLES",
        "HOME",
        "HOSTALIASES",
        "IFS",
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "LOCPATH",
        "NLSPATH",
        "NODE_OPTIONS",
        "NODE_PATH",
        "PATH",
        "PROMPT_COMMAND",
        "PS4",
        "RESOLV_HOST_CONF",
        "SHELLOPTS",
        "TMPDIR",
        "_JAVA_OPTIONS",
    ];
    const PREFIXES: &[&str] = &[
        "BASH_FUNC_",
        "BUN_",
        "BUNDLE_",
        "CORECLR_",
        "COR_",
        "DENO_",
        "DOTNET_",
        "DYLD_",
        "GEM_",
        "GIT_",
        "JAVA_",
        "LD_",
        "LUA_",
        "MALLOC_",
        "NODE_REPL_",
        "NPM_CONFIG_",
        "PERL",
        "PHP",
        "PIP_",
        "PYTHON",
        "RUBY",
        "UV_",
    ];
    let upper = name.to_ascii_uppercase();
    NAMES.contains(&upper.as_str()) || PREFIXES.iter().any(|prefix| upper.starts_with(prefix))
}

fn mistake(path: impl Into<String>, words: impl Into<String>) -> Mistake {
    Mistake { path: path.into(), words: words.into() }
}

/// A JSON pointer (RFC 6901), bounded and escaped for our answer.
fn variable_path(name: &str) -> String {
    let name = name.replace('~', "~0").replace('/', "~1");
    format!("/env/{}", tool::escaped(&name, 100))
}

#[cfg(test)]
mod tests;
