use std::{fs, path::PathBuf};

use clap::Parser;
use domain::server::stdio::StdioMode;
use secrecy::ExposeSecret;

use super::{EgressAllow, LogFormat, Mistakes, Settings, SettingsArgs, load};

/// Two keys of the right shape; no installation uses them.
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OTHER_KEY: &str = "_______________________________________-Pv8=";

fn with_env(variables: &[(&str, &str)]) -> Result<Settings, Mistakes> {
    with_flags_and_env(&SettingsArgs::default(), variables)
}

fn with_flags_and_env(
    args: &SettingsArgs,
    variables: &[(&str, &str)],
) -> Result<Settings, Mistakes> {
    load(args, variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
}

/// The one line that says what is wrong.
fn mistake(variables: &[(&str, &str)]) -> String {
    with_env(variables).unwrap_err().to_string()
}

/// A file that exists as long as the directory does.
fn file(dir: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn without_any_source_the_service_listens_on_loopback() {
    let settings = with_env(&[]).unwrap();
    assert_eq!(settings.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(settings.permission_wait_seconds, 600);
    assert_eq!(settings.log, "info");
    assert!(settings.database_url.is_none() && settings.egress_allow.is_empty());
}

#[test]
fn a_flag_beats_a_variable_beats_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let config = file(
        &dir,
        "bailiwick.toml",
        "listen = '127.0.0.1:1'\nlog = 'error'\ncontact = 'file@example.org'\n\
         permission_wait_seconds = 30\nallowed_hosts = ['a.example.org', 'b.example.org:81']\n",
    );
    let args = SettingsArgs {
        config: Some(config),
        listen: Some("127.0.0.1:3".to_owned()),
        ..Default::default()
    };
    let variables = [("BAILIWICK_LISTEN", "127.0.0.1:2"), ("BAILIWICK_LOG", "warn")];
    let settings = with_flags_and_env(&args, &variables).unwrap();
    assert_eq!(settings.listen.to_string(), "127.0.0.1:3");
    assert_eq!(settings.log, "warn");
    assert_eq!(settings.contact.as_deref(), Some("file@example.org"));
    assert_eq!(settings.permission_wait_seconds, 30);
    assert_eq!(settings.allowed_hosts, ["a.example.org", "b.example.org:81"]);
}

#[test]
fn the_file_can_be_named_by_a_variable() {
    let dir = tempfile::tempdir().unwrap();
    let config = file(&dir, "any.toml", "log_format = 'json'");
    let settings = with_env(&[("BAILIWICK_CONFIG", config.to_str().unwrap())]).unwrap();
    assert_eq!(settings.log_format, LogFormat::Json);
}

#[test]
fn all_mistakes_are_reported_at_once_by_name_and_source() {
    let dir = tempfile::tempdir().unwrap();
    let config = file(&dir, "bailiwick.toml", "colour = 'red'\nlog = { level = 1 }\n");
    let args = SettingsArgs {
        config: Some(config.clone()),
        log_format: Some("xml".to_owned()),
        ..Default::default()
    };
    let variables = [
        ("BAILIWICK_LISTEN", "everywhere"),
        ("BAILIWICK_LISTNE", "127.0.0.1:1"),
        ("BAILIWICK_PERMISSION_WAIT_SECONDS", "601"),
        ("BAILIWICK_REDIS_URL", "redis://cache"),
    ];
    let config = config.display();
    assert_eq!(
        with_flags_and_env(&args, &variables).unwrap_err().to_string(),
        format!(
            "listne (from BAILIWICK_LISTNE): no such setting\n\
             redis_url (from BAILIWICK_REDIS_URL): not supported by this version\n\
             log (from {config}): must be a text, a whole number or a list of texts\n\
             colour (from {config}): no such setting\n\
             listen (from BAILIWICK_LISTEN): must be an address and a port, such as 127.0.0.1:8080\n\
             permission_wait_seconds (from BAILIWICK_PERMISSION_WAIT_SECONDS): must be a whole \
             number from 1 to 600\n\
             log_format (from --log-format): must be json or text"
        )
    );
}

#[test]
fn settings_of_later_versions_are_refused_and_variables_of_other_code_are_not() {
    for name in ["REDIS_URL", "CONNECT_TO", "MANIFESTS", "METRICS_LISTEN", "NCBI_API_KEY"] {
        let line = mistake(&[(&format!("BAILIWICK_{name}"), "anything")]);
        assert!(line.ends_with("not supported by this version"), "{line}");
    }
    let read_elsewhere = ["URL", "TOKEN", "APPROVE_TOKEN", "PG_BIN"];
    for name in read_elsewhere {
        with_env(&[(&format!("BAILIWICK_{name}"), "anything")]).unwrap();
    }
    with_env(&[("HOME", "/root"), ("BAILIWICK_REDIS_URL", "")]).unwrap();
}

#[test]
fn no_secret_is_shown_by_settings_flags_or_mistakes() {
    let secrets = [
        ("BAILIWICK_DATABASE_URL", "postgres://app:hunter2@db/bailiwick"),
        ("BAILIWICK_OWNER_DATABASE_URL", "postgres://owner:hunter2@db/bailiwick"),
        ("BAILIWICK_ENCRYPTION_KEYS", KEY),
        ("BAILIWICK_SEAL_KEY", OTHER_KEY),
    ];
    let shown = format!("{:?}", with_env(&secrets).unwrap());
    assert!(!shown.contains("hunter2") && !shown.contains(KEY) && !shown.contains(OTHER_KEY));

    let args = SettingsArgs { seal_key: Some(KEY.into()), ..Default::default() };
    assert!(!format!("{args:?}").contains(KEY));

    let wrong = [
        ("BAILIWICK_DATABASE_URL", "mysql://app:hunter2@db"),
        ("BAILIWICK_ENCRYPTION_KEYS", "hunter2"),
        ("BAILIWICK_SEAL_KEY", "hunter2"),
        ("BAILIWICK_OBJECT_STORE_URL", "s3://key:hunter2@bucket"),
        ("BAILIWICK_PUBLIC_URL", "https://admin:hunter2@example.org"),
    ];
    let mistakes = with_env(&wrong).unwrap_err();
    assert_eq!(mistakes.0.len(), wrong.len());
    assert!(!mistakes.to_string().contains("hunter2"), "{mistakes}");
}

#[test]
fn a_broken_file_is_named_by_line_and_not_quoted() {
    let dir = tempfile::tempdir().unwrap();
    let config = file(&dir, "bailiwick.toml", "log = 'info'\nseal_key = 'hunter2\n");
    let line = mistake(&[("BAILIWICK_CONFIG", config.to_str().unwrap())]);
    assert_eq!(line, format!("config (from {}): is not TOML, line 2", config.display()));
}

#[test]
fn a_secret_can_stand_in_a_file_but_not_in_two_places() {
    let dir = tempfile::tempdir().unwrap();
    let keys = file(&dir, "keys", &format!("{KEY},{OTHER_KEY}\n"));
    let keys = keys.to_str().unwrap();
    let settings = with_env(&[("BAILIWICK_ENCRYPTION_KEYS_FILE", keys)]).unwrap();
    let read = settings.encryption_keys.unwrap();
    assert_eq!(read.expose_secret(), format!("{KEY},{OTHER_KEY}"));

    // A flag beats both forms of the variable.
    let args = SettingsArgs { encryption_keys: Some(KEY.into()), ..Default::default() };
    let settings = with_flags_and_env(&args, &[("BAILIWICK_ENCRYPTION_KEYS_FILE", keys)]).unwrap();
    assert_eq!(settings.encryption_keys.unwrap().expose_secret(), KEY);

    let both = [("BAILIWICK_ENCRYPTION_KEYS_FILE", keys), ("BAILIWICK_ENCRYPTION_KEYS", KEY)];
    assert_eq!(
        mistake(&both),
        "encryption_keys (from BAILIWICK_ENCRYPTION_KEYS): is set twice: here and as \
         BAILIWICK_ENCRYPTION_KEYS_FILE"
    );
    let line = mistake(&[("BAILIWICK_SEAL_KEY_FILE", "/nowhere/seal-key")]);
    assert!(line.starts_with("seal_key (from BAILIWICK_SEAL_KEY_FILE): cannot read /nowhere"));
    // Only secrets have a file form.
    assert!(mistake(&[("BAILIWICK_LISTEN_FILE", keys)]).ends_with("no such setting"));
}

#[test]
fn keys_of_another_shape_are_refused_by_their_number() {
    let name = "BAILIWICK_ENCRYPTION_KEYS";
    let unpadded = KEY.trim_end_matches('=');
    for (keys, problem) in [
        (",", "holds no key"),
        (&*format!("{KEY},{unpadded}"), "key 2 is not 32 bytes in padded URL-safe base64"),
        (&*format!("{KEY},{KEY}"), "key 2 is there twice"),
        ("AAAA", "key 1 is not 32 bytes in padded URL-safe base64"),
    ] {
        assert_eq!(mistake(&[(name, keys)]), format!("encryption_keys (from {name}): {problem}"));
    }
    with_env(&[("BAILIWICK_SEAL_KEY", unpadded)]).unwrap();
}

#[test]
fn beyond_loopback_a_public_url_is_needed() {
    let everywhere = ("BAILIWICK_LISTEN", "0.0.0.0:8080");
    assert_eq!(
        mistake(&[everywhere]),
        "listen (from BAILIWICK_LISTEN): is not a loopback address, so public_url has to be set too"
    );
    let settings =
        with_env(&[everywhere, ("BAILIWICK_PUBLIC_URL", "https://b.example.org")]).unwrap();
    assert_eq!(settings.public_url.unwrap().as_str(), "https://b.example.org/");
    with_env(&[("BAILIWICK_LISTEN", "[::1]:0")]).unwrap();
    with_env(&[("BAILIWICK_LISTEN", "localhost:0")]).unwrap();
}

#[test]
fn a_public_url_is_encrypted_unless_loopback_and_has_no_path() {
    let name = "BAILIWICK_PUBLIC_URL";
    for good in ["http://localhost:8080", "http://127.0.0.1:1/", "http://[::1]", "https://x.org:8"]
    {
        with_env(&[(name, good)]).unwrap();
    }
    for bad in ["http://x.org", "https://x.org/base", "https://x.org/?q", "ftp://x.org", "x.org"] {
        assert!(
            mistake(&[(name, bad)]).starts_with("public_url (from BAILIWICK_PUBLIC_URL): must")
        );
    }
}

#[test]
fn egress_rules_are_networks_addresses_and_hosts() {
    let text = "127.0.0.0/8, ::1,10.1.2.3/8,Tools.Example.org.";
    let rules = with_env(&[("BAILIWICK_EGRESS_ALLOW", text)]).unwrap().egress_allow;
    let shown: Vec<String> = rules.iter().map(EgressAllow::to_string).collect();
    assert_eq!(shown, ["127.0.0.0/8", "::1/128", "10.0.0.0/8", "tools.example.org"]);
    assert_eq!(rules[3], EgressAllow::Host("tools.example.org".to_owned()));
    for bad in ["*.example.org", "example.org:80", "http://example.org", "0x7f.1", "10.0.0.0/33"] {
        assert!(bad.parse::<EgressAllow>().is_err(), "{bad}");
    }
}

#[test]
fn trusted_proxies_are_networks() {
    let settings = with_env(&[("BAILIWICK_TRUSTED_PROXIES", "10.1.2.3/8, ::1")]).unwrap();
    let networks: Vec<String> = settings.trusted_proxies.iter().map(ToString::to_string).collect();
    assert_eq!(networks, ["10.0.0.0/8", "::1/128"]);
    assert_eq!(
        mistake(&[("BAILIWICK_TRUSTED_PROXIES", "proxy.example.org")]),
        "trusted_proxies (from BAILIWICK_TRUSTED_PROXIES): \"proxy.example.org\" is neither a network \
         such as 10.0.0.0/8 nor an address"
    );
}

#[test]
fn allowed_hosts_are_hosts_with_or_without_a_port() {
    let name = "BAILIWICK_ALLOWED_HOSTS";
    let hosts = with_env(&[(name, "A.example.org, b.example.org:80,[::1]:8080")]).unwrap();
    assert_eq!(hosts.allowed_hosts, ["a.example.org", "b.example.org:80", "[::1]:8080"]);
    for bad in
        ["https://a.example.org", "a.example.org/x", "u@a.example.org", "*.example.org", "a:b"]
    {
        assert!(mistake(&[(name, bad)]).ends_with("is not a host or host:port"), "{bad}");
    }
}

#[test]
fn the_remaining_settings_are_checked_too() {
    for (name, bad) in [
        ("BAILIWICK_CONTACT", "line\nbreak"),
        ("BAILIWICK_EXTRA_CA", "/nowhere/ca.pem"),
        ("BAILIWICK_LOG", "info,=,=="),
        ("BAILIWICK_LOG_FORMAT", "xml"),
        ("BAILIWICK_METRICS_LISTEN", "127.0.0.1:8080"),
        ("BAILIWICK_OBJECT_STORE_URL", "objects"),
        ("BAILIWICK_PERMISSION_WAIT_SECONDS", "0"),
    ] {
        assert_eq!(mistake(&[(name, bad)]).lines().count(), 1, "{name}");
    }
}

#[derive(Debug, Parser)]
struct Program {
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Up,
}

#[test]
fn flags_stand_before_or_after_the_command_and_help_shows_no_value() {
    let line = ["bailiwick", "--listen", "127.0.0.1:0", "up", "--seal-key", KEY, "--log=warn"];
    let program = Program::try_parse_from(line).unwrap();
    let Program { settings, command: Command::Up } = &program;
    let settings = load(settings, std::iter::empty()).unwrap();
    assert_eq!(settings.listen.port(), 0);
    assert_eq!(settings.log, "warn");
    assert_eq!(settings.seal_key.unwrap().expose_secret(), KEY);
    assert!(!format!("{program:?}").contains(KEY));

    let help = Program::try_parse_from(["bailiwick", "--help"]).unwrap_err().to_string();
    assert!(help.contains("--encryption-keys-file") && !help.contains("[env"), "{help}");
}

fn with_file(text: &str, variables: &[(&str, &str)]) -> Result<Settings, Mistakes> {
    let dir = tempfile::tempdir().unwrap();
    let config = file(&dir, "bailiwick.toml", text);
    with_flags_and_env(&SettingsArgs { config: Some(config), ..Default::default() }, variables)
}

#[test]
fn programs_come_from_the_file_and_are_off_unless_somebody_says_so() {
    assert!(with_env(&[]).unwrap().stdio.is_none());
    let said = |word: &str| with_env(&[("BAILIWICK_STDIO", word)]).unwrap().stdio.unwrap();
    assert!(matches!(said("off"), StdioMode::Off));
    assert!(matches!(said("any"), StdioMode::Any));
    assert!(matches!(said("allowlist"), StdioMode::Allowlist(programs) if programs.is_empty()));
    assert!(mistake(&[("BAILIWICK_STDIO", "yes")]).ends_with("must be off, allowlist or any"));
    assert!(matches!(with_file("stdio = 'any'", &[]).unwrap().stdio, Some(StdioMode::Any)));

    let list = "[[stdio.allow]]\nname = 'files'\ncommand = '/bin/files'\n\
                args = ['--root', { matches = '/srv/[a-z]+' }, { rest = '.*' }]\nenv = ['LEVEL']\n";
    let in_file = with_file(&format!("[stdio]\nmode = 'allowlist'\n{list}"), &[]).unwrap();
    let by_variable = with_file(list, &[("BAILIWICK_STDIO", "allowlist")]).unwrap();
    for settings in [in_file, by_variable] {
        let Some(StdioMode::Allowlist(programs)) = settings.stdio else { panic!("a list") };
        assert_eq!((programs.len(), programs[0].name.as_str()), (1, "files"));
        assert_eq!((programs[0].args.len(), programs[0].env.len()), (3, 1));
    }
    let stronger = with_file(list, &[("BAILIWICK_STDIO", "off")]).unwrap();
    assert!(matches!(stronger.stdio, Some(StdioMode::Off)));
}

#[test]
fn every_mistake_of_the_list_of_programs_is_told_at_once() {
    let text = "listen = 'nowhere'\n[stdio]\nmode = 'allowlist'\nshell = true\n\
                [[stdio.allow]]\nname = 'a'\ncommand = 'relative'\n\
                [[stdio.allow]]\nname = 'b'\ncommand = '/b'\nenv = ['LD_PRELOAD']\n\
                [[stdio.allow]]\nname = 'c'\ncommand = '/c'\nargs = [{ matches = '(' }]\n\
                [[stdio.allow]]\nname = 'd'\ncommand = '/d'\nshell = true\n\
                [[stdio.allow]]\nname = 'e'\ncommand = '/e'\n\
                [[stdio.allow]]\nname = 'e'\ncommand = '/e'\n";
    let words = with_file(text, &[]).unwrap_err().to_string();
    for part in ["listen", "stdio.shell", "entry 1", "entry 2", "entry 3", "entry 4", "entry 6"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    assert!(!words.contains("entry 5"), "{words}");
    let alone = with_file("[[stdio.allow]]\nname = 'a'\ncommand = '/a'\n", &[]).unwrap_err();
    assert!(alone.to_string().contains("nothing says mode"), "{alone}");
}
