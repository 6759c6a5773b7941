//! Why a command was not done, as it stands on stderr.

use std::{error::Error as StdError, fmt, process::ExitCode};

use domain::Code;
use runtime::{config::Mistakes, terminal};

/// A reason with its causes.
#[derive(Debug)]
pub(crate) struct Failure {
    words: String,
    causes: Vec<String>,
    /// The command was not understood, rather than refused.
    usage: bool,
}

impl Failure {
    pub(crate) fn new(words: impl Into<String>) -> Self {
        Self { words: words.into(), causes: Vec::new(), usage: false }
    }

    pub(crate) fn usage(words: impl Into<String>) -> Self {
        Self { usage: true, ..Self::new(words) }
    }

    pub(crate) fn because(words: impl Into<String>, cause: impl StdError + 'static) -> Self {
        Self { causes: chain(&cause), ..Self::new(words) }
    }

    pub(crate) fn because_of(words: impl Into<String>, cause: &(dyn StdError + 'static)) -> Self {
        Self { causes: chain(cause), ..Self::new(words) }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(if self.usage { 2 } else { 1 })
    }
}

fn chain<'a>(error: &'a (dyn StdError + 'static)) -> Vec<String> {
    let next = |&error: &&'a (dyn StdError + 'static)| error.source();
    let mut causes = Vec::<String>::new();
    for words in std::iter::successors(Some(error), next).map(ToString::to_string) {
        // Many errors end with the words of their own cause.
        if !causes.last().is_some_and(|above| above.ends_with(&words)) {
            causes.push(words);
        }
    }
    causes
}

/// Where something is broken, with its causes: whoever runs a command of this program is its
/// operator. A refusal says everything itself.
impl From<domain::Error> for Failure {
    fn from(error: domain::Error) -> Self {
        let broken = !matches!(
            error.code,
            Code::Conflict | Code::NotFound | Code::Denied | Code::InvalidInput
        );
        let source = error.source.as_deref().filter(|_| broken);
        let causes = source.map(|cause| chain(cause)).unwrap_or_default();
        Self { causes, ..Self::new(error.public.clone()) }
    }
}

impl From<Mistakes> for Failure {
    fn from(mistakes: Mistakes) -> Self {
        let lines = mistakes.0.iter().map(|mistake| Mistakes(vec![mistake.clone()]).to_string());
        Self { causes: lines.collect(), ..Self::usage("the settings are not usable") }
    }
}

impl From<runtime::postgres::Error> for Failure {
    fn from(error: runtime::postgres::Error) -> Self {
        Self::because("the private postgres is not usable", error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "bailiwick: {}", terminal::escape(&self.words))?;
        for cause in &self.causes {
            writeln!(f, "  {}", terminal::escape(cause))?;
        }
        Ok(())
    }
}
