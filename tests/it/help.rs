//! `--help` teaches: every command and flag says what it is, every command has examples, and what the
//! help and the documents tell people to type can be typed.
#![expect(clippy::unwrap_used, reason = "a test, and what helps it, fails by panicking")]

mod words;

use std::{fs, path::Path, process::Command as Process};

use serde_json::Value;
use words::split;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bailiwick-under-test");

/// A command and the words that lead to it.
struct Leaf {
    path: Vec<String>,
    command: bailiwick::CommandLine,
}

/// All commands below this one, itself too; clap's own `help` is not ours.
fn walk(command: &bailiwick::CommandLine, path: &[String], leaves: &mut Vec<Leaf>) {
    let mut path = path.to_vec();
    path.push(command.get_name().to_owned());
    for below in command.get_subcommands().filter(|one| one.get_name() != "help") {
        walk(below, &path, leaves);
    }
    leaves.push(Leaf { path, command: command.clone() });
}

fn commands() -> Vec<Leaf> {
    let mut command = bailiwick::command();
    command.build();
    let mut leaves = Vec::new();
    walk(&command, &[], &mut leaves);
    assert!(leaves.len() > 12, "the commands are found");
    leaves
}

/// Lines of a help text or document that are typed: `bailiwick …`, perhaps behind variables.
fn typed(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    let is_ours = |line: &&str| {
        let mut words = line.split(' ').skip_while(|word| {
            word.split_once('=').is_some_and(|(name, _)| name.starts_with("BAILIWICK_"))
        });
        words.next() == Some("bailiwick")
    };
    lines.filter(is_ours).map(str::to_owned).collect()
}

/// Whether the command line takes it; what a shell does with the rest of the line is the shell's.
fn parses(line: &str) -> Result<(), String> {
    let words = split(line);
    let program = words.iter().position(|word| word == "bailiwick").ok_or("no program")?;
    let end = words.iter().position(|word| ["|", ">", "<", "&&", ";"].contains(&word.as_str()));
    let words = &words[program..end.unwrap_or(words.len())];
    match bailiwick::command().try_get_matches_from(words) {
        Ok(_) => Ok(()),
        // What it says then is on stdout, and the exit status is 0.
        Err(error) if !error.use_stderr() => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn every_command_and_every_flag_says_what_it_is() {
    for Leaf { path, command } in commands() {
        let name = path.join(" ");
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(!about.is_empty() && about.len() <= 90, "{name}: {about:?}");
        let long = command.get_long_about().map(ToString::to_string).unwrap_or_default();
        assert!(long.len() > about.len() + 40, "{name} says when to use it");
        for argument in command.get_arguments() {
            let flag = argument.get_id().as_str();
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(!help.is_empty(), "{name}: {flag} says nothing");
            assert!(!help.contains("\n\n"), "{name}: {flag} is one line");
        }
    }
}

#[test]
fn every_command_has_examples_and_each_can_be_typed() {
    for Leaf { path, command } in commands() {
        let name = path.join(" ");
        let short = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples = typed(&short);
        assert!(!examples.is_empty(), "{name} has no example");
        for example in &examples {
            if let Err(why) = parses(example) {
                panic!("{name}: {example}\n{why}");
            }
        }
        // A command's own examples show that command.
        let own = examples.iter().any(|example| example.contains(&name));
        assert!(own || path.len() == 1, "{name}: {examples:?}");
        if !command.has_subcommands() || path.len() == 1 {
            let long = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            assert!(long.starts_with(&short), "{name}: --help has what -h has");
            assert!(long.contains("Exit status:\n  0  "), "{name} says how it ends");
        }
    }
}

#[test]
fn every_setting_names_its_variable() {
    let mut found = 0;
    for argument in bailiwick::command().get_arguments() {
        let ours = argument.get_help_heading().is_some_and(|one| one.starts_with("Settings"));
        if ours {
            found += 1;
            let variable = format!("BAILIWICK_{}", argument.get_id().as_str().to_uppercase());
            let help = argument.get_help().unwrap().to_string();
            assert!(help.contains(&variable), "{help} does not name {variable}");
        }
    }
    assert!(found > 15, "{found} settings");
}

#[test]
fn help_works_without_usable_settings_and_so_do_completions() {
    let run = |arguments: &[&str]| {
        let mut process = Process::new(PROGRAM);
        process.args(arguments).env("BAILIWICK_LISTEN", "nowhere").output().unwrap()
    };
    let help = run(&["help", "call"]);
    let words = String::from_utf8(help.stdout).unwrap();
    assert!(help.status.success());
    for part in ["Usage: ", "Examples:", "Exit status:", "--answer", "BAILIWICK_DATA_DIR"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    for (shell, mark) in [
        ("bash", "complete -F _bailiwick"),
        ("zsh", "#compdef bailiwick"),
        ("fish", "complete -c bailiwick"),
        ("elvish", "edit:completion"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let output = run(&["completions", shell]);
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && script.contains(mark), "{shell}");
        assert!(script.contains("doctor") && script.contains("data-dir"), "{shell}");
    }
    assert_eq!(run(&["completions", "ksh"]).status.code(), Some(2));
}

/// The script as its shell reads it: it completes a command and its flags.
#[test]
fn bash_completes_commands_and_flags() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("completions");
    let made = Process::new(PROGRAM).args(["completions", "bash"]).output().unwrap();
    fs::write(&script, made.stdout).unwrap();
    let complete = |line: &str| {
        let words = line.split(' ').map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
        let last = line.split(' ').count() - 1;
        let test = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD={last}; \
             _bailiwick bailiwick \"${{COMP_WORDS[$COMP_CWORD]}}\" ''; echo \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let output = Process::new("bash").args(["--norc", "-c", &test]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(complete("bailiwick doc"), "doctor");
    assert_eq!(complete("bailiwick token cr"), "create");
    assert_eq!(complete("bailiwick doctor --js"), "--json");
}

/// Fenced blocks of a document: language and text.
fn blocks(text: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in text.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(language), None) => open = Some((language.trim().to_owned(), String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some((_, text))) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

fn documents() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files: Vec<_> = ["README.md", "docs/operating.md", "docs/troubleshooting.md"]
        .map(|name| root.join(name))
        .into();
    for entry in fs::read_dir(root.join("docs/guides")).unwrap() {
        files.push(entry.unwrap().path());
    }
    let read =
        |path: &std::path::PathBuf| (path.display().to_string(), fs::read_to_string(path).unwrap());
    files.iter().map(read).collect()
}

#[test]
fn what_the_documents_say_to_type_can_be_typed_and_their_json_is_json() {
    let (mut commands, mut objects) = (0, 0);
    for (path, text) in documents() {
        for (language, block) in blocks(&text) {
            if language == "json" {
                objects += 1;
                if let Err(error) = serde_json::from_str::<Value>(&block) {
                    panic!("{path}: {error}\n{block}");
                }
            }
            let lines = block.replace("\\\n", " ");
            for line in typed(&lines) {
                commands += 1;
                if let Err(why) = parses(&line) {
                    panic!("{path}: {line}\n{why}");
                }
            }
        }
    }
    assert!(commands >= 5 && objects >= 5, "{commands} commands, {objects} objects");
}

#[test]
fn the_guide_for_clients_says_how_each_carries_its_token() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let guide = fs::read_to_string(root.join("docs/guides/clients.md")).unwrap();
    let mut configurations = 0;
    for (language, block) in blocks(&guide) {
        let carries =
            block.contains("Authorization") && block.contains("https://bailiwick.example.org/mcp");
        let creates = block.contains("token create");
        assert!(carries || creates, "{language}:\n{block}");
        if language != "json" {
            continue;
        }
        configurations += 1;
        let value: Value = serde_json::from_str(&block).unwrap();
        let servers = value.get("mcpServers").or_else(|| value.get("servers")).unwrap();
        let server = &servers["bailiwick"];
        let url = server["url"].as_str().unwrap_or_else(|| server["args"][2].as_str().unwrap());
        assert_eq!(url, "https://bailiwick.example.org/mcp");
        if let Some(header) = server["headers"]["Authorization"].as_str() {
            // A variable of the client's, never a token.
            assert!(header.starts_with("Bearer ${"), "{header}");
        }
    }
    assert_eq!(configurations, 4, "Claude Code, Cursor, VS Code, mcp-remote");
    for client in [
        "Claude Code",
        "Cursor",
        "VS Code",
        "MCP Inspector",
        "Python",
        "TypeScript",
        "LangChain",
        "mcp-remote",
    ] {
        assert!(guide.contains(&format!("\n## {client}\n")), "{client}");
    }
}
