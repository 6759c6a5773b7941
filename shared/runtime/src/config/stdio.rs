//! Which programs may run on this host: the word, and the operator's list of the file.
//!
//! ```toml
//! [stdio]
//! mode = "allowlist"
//!
//! [[stdio.allow]]
//! name = "files"
//! command = "/usr/local/bin/mcp-files"
//! args = ["--root", { matches = "/srv/data/[a-z]+" }]
//! env = ["LOG_LEVEL"]
//! ```

use domain::server::stdio::{AllowedProgram, StdioMode};

use super::sources::Sources;

/// What shuts programs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StdioSandbox {
    /// Bubblewrap where it works, else other accounts where we are root, else nothing is run.
    #[default]
    Strongest,
    Bubblewrap,
    /// The operator answers for what programs can read.
    None,
}

pub(super) fn sandbox(text: &str) -> Result<StdioSandbox, String> {
    match text {
        "strongest" => Ok(StdioSandbox::Strongest),
        "bubblewrap" => Ok(StdioSandbox::Bubblewrap),
        "none" => Ok(StdioSandbox::None),
        _ => Err("must be strongest, bubblewrap or none".to_owned()),
    }
}

/// What `BAILIWICK_STDIO`, or `mode` of the table, says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Off,
    Allowlist,
    Any,
}

fn word(text: &str) -> Result<Word, String> {
    match text {
        "off" => Ok(Word::Off),
        "allowlist" => Ok(Word::Allowlist),
        "any" => Ok(Word::Any),
        _ => Err("must be off, allowlist or any".to_owned()),
    }
}

/// `None`: nobody said anything.
pub(super) fn read(from: &mut Sources) -> Option<StdioMode> {
    let said = from.parse("stdio", word);
    let listed = from.take_programs();
    let mut programs = Vec::new();
    if let Some((source, entries)) = &listed {
        for (index, entry) in entries.iter().enumerate() {
            match program(entry, &programs) {
                Ok(program) => programs.push(program),
                Err(problem) => {
                    let problem = format!("entry {}: {problem}", index + 1);
                    from.push("stdio.allow", source.clone(), problem);
                }
            }
        }
        // A word that was given and is wrong has its own mistake already.
        if said.is_none() && !from.has("stdio") {
            let problem = "is there, but nothing says mode = \"allowlist\"".to_owned();
            from.push("stdio.allow", source.clone(), problem);
        }
    }
    Some(match said? {
        Word::Off => StdioMode::Off,
        Word::Allowlist => StdioMode::Allowlist(programs),
        Word::Any => StdioMode::Any,
    })
}

fn program(entry: &toml::Value, before: &[AllowedProgram]) -> Result<AllowedProgram, String> {
    let program: AllowedProgram =
        entry.clone().try_into().map_err(|error: toml::de::Error| error.message().to_owned())?;
    program.validate().map_err(|error| error.public)?;
    if before.iter().any(|other| other.name == program.name) {
        return Err(format!("the name {:?} is there twice", program.name));
    }
    Ok(program)
}
