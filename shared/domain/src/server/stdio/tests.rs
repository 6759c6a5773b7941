use super::*;

fn listed() -> StdioMode {
    let list = r#"[
        {"name":"files","command":"/usr/bin/files","args":["--stdio",{"matches":"/srv/data/.*|/srv/more"}],
         "env":["TOKEN"],"cwd":"/srv"},
        {"name":"many","command":"/usr/bin/many","args":["x",{"rest":"[a-z]+"}]}
    ]"#;
    StdioMode::Allowlist(serde_json::from_str(list).unwrap())
}

fn paths(mode: &StdioMode, command: &str, args: &[&str], cwd: &str, env: &[&str]) -> Vec<String> {
    let args: Vec<String> = args.iter().map(ToString::to_string).collect();
    match mode.check(&Asked { command, args: &args, cwd, env }) {
        Ok(_) => Vec::new(),
        Err(mistakes) => mistakes.into_iter().map(|mistake| mistake.path).collect(),
    }
}

#[test]
fn a_program_runs_as_it_is_listed_and_not_otherwise() {
    let mode = listed();
    let files =
        |args: &[&str], cwd: &str, env: &[&str]| paths(&mode, "/usr/bin/files", args, cwd, env);
    let nothing: [&str; 0] = [];
    assert_eq!(files(&["--stdio", "/srv/data/a"], "", &["TOKEN"]), nothing);
    assert_eq!(files(&["--stdio", "/srv/more"], "/srv", &[]), nothing);
    assert_eq!(files(&["--other", "/srv/data/a"], "", &[]), ["/args/0"]);
    // The anchors bind the whole alternative, and a path does not climb out of its pattern.
    assert_eq!(files(&["--stdio", "/srv/more/x"], "", &[]), ["/args/1"]);
    assert_eq!(files(&["--stdio", "x/srv/data/a"], "", &[]), ["/args/1"]);
    assert_eq!(files(&["--stdio", "/srv/data/../../etc"], "", &[]), ["/args/1"]);
    assert_eq!(files(&["--stdio", "/srv/data/a\n/etc"], "", &[]), ["/args/1"]);
    assert_eq!(files(&["--stdio"], "", &[]), ["/args"]);
    assert_eq!(files(&["--stdio", "/srv/more", "x"], "", &[]), ["/args/2"]);
    assert_eq!(files(&["--stdio", "/srv/more"], "/etc", &["OTHER"]), ["/cwd", "/env/OTHER"]);
    assert_eq!(paths(&mode, "/usr/bin/other", &[], "", &[]), ["/command"]);
}

#[test]
fn a_rest_takes_any_number_of_arguments() {
    let mode = listed();
    for args in [&["x"][..], &["x", "ab"], &["x", "ab", "c"]] {
        assert!(paths(&mode, "/usr/bin/many", args, "", &[]).is_empty(), "{args:?}");
    }
    assert_eq!(paths(&mode, "/usr/bin/many", &["x", "a", "1"], "", &[]), ["/args/2"]);
}

#[test]
fn what_steers_a_loader_is_refused_in_every_mode() {
    for name in [
        "LD_PRELOAD",
        "ld_library_path",
        "DYLD_INSERT_LIBRARIES",
        "NODE_OPTIONS",
        "PATH",
        "PYTHONPATH",
        "PythonStartup",
        "GIT_SSH_COMMAND",
        "BASH_ENV",
        "ENV",
        "PERL5LIB",
        "RUBYOPT",
        "JAVA_TOOL_OPTIONS",
        "npm_config_script_shell",
        "HOME",
        "a=b",
        "",
    ] {
        assert_eq!(paths(&StdioMode::Any, "/bin/x", &[], "", &[name]), [variable_path(name)]);
    }
    for name in ["TOKEN", "API_KEY", "NODE_ENV", "MEMORY_FILE_PATH", "LDAP_URL", "ENVIRONMENT"] {
        assert!(paths(&StdioMode::Any, "/bin/x", &[], "", &[name]).is_empty(), "{name}");
    }
}

#[test]
fn only_plain_absolute_paths_are_commands() {
    for command in ["", "npx", "./x", "/", "/bin/../x", "/bin//x", "/bin/x/", "/bin/\0x", "~/x"] {
        assert_eq!(paths(&StdioMode::Any, command, &[], "", &[]), ["/command"], "{command:?}");
    }
    assert_eq!(paths(&StdioMode::Any, "/bin/x", &["a\0b"], "tmp", &[]), ["/args/0", "/cwd"]);
}

#[test]
fn nothing_runs_where_programs_are_off() {
    assert_eq!(paths(&StdioMode::Off, "/bin/x", &[], "", &[]), ["/transport"]);
    let error = StdioMode::Off
        .require(&Asked { command: "/bin/x", args: &[], cwd: "", env: &[] })
        .unwrap_err();
    assert_eq!(error.code, Code::ServerMisconfigured);
    assert_eq!(
        error.to_string(),
        "the server's program may not run: transport stdio is switched off here"
    );
}

#[test]
fn an_entry_that_cannot_be_meant_is_refused() {
    let entry = |json: &str| {
        let entry: Result<AllowedProgram, _> = serde_json::from_str(json);
        entry
            .map_err(|error| error.to_string())
            .and_then(|entry| entry.validate().map_err(|error| error.to_string()))
    };
    assert_eq!(entry(r#"{"name":"a","command":"/bin/a"}"#), Ok(()));
    for json in [
        r#"{"name":"","command":"/bin/a"}"#,
        r#"{"name":"a","command":"a"}"#,
        r#"{"name":"a","command":"/bin/a","args":[{"rest":"x"},"y"]}"#,
        r#"{"name":"a","command":"/bin/a","args":[{"matches":"a)|(b"}]}"#,
        r#"{"name":"a","command":"/bin/a","env":["LD_PRELOAD"]}"#,
        r#"{"name":"a","command":"/bin/a","writable":["../x"]}"#,
        r#"{"name":"a","command":"/bin/a","what":1}"#,
    ] {
        assert!(entry(json).is_err(), "{json}");
    }
}

#[test]
fn an_entry_is_written_as_it_is_read() {
    let StdioMode::Allowlist(entries) = listed() else { panic!() };
    let again: Vec<AllowedProgram> =
        serde_json::from_str(&serde_json::to_string(&entries).unwrap()).unwrap();
    assert_eq!(again, entries);
}
