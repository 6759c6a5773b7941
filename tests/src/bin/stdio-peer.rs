//! An MCP server on standard input and output, written by hand, with the faults that real ones have.
//! `stdio-peer MARKER [MODE…]`; the marker is how tests find it in the process table.

use std::{
    env, fs,
    io::{self, BufRead, Write},
    os::unix::process::CommandExt,
    process::{Command, ExitCode, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let has = |mode: &str| arguments.iter().any(|argument| argument == mode);
    if has("stubborn") {
        stop_at_nothing();
    }
    if has("linger") {
        thread::sleep(Duration::from_mins(10));
        return ExitCode::SUCCESS;
    }
    if has("deaf") {
        loop {
            thread::park();
        }
    }
    if let Some(seconds) = arguments.iter().find_map(|one| one.strip_prefix("late=")) {
        // As one that is downloaded first.
        thread::sleep(Duration::from_secs(seconds.parse().expect("a number")));
    }
    if has("greeting") {
        say("Starting the server…\r\n\n{not json\n[1, 2]\n\"text\"\n");
    }
    if has("flood") {
        let line = format!("{}\n", "e".repeat(999));
        thread::spawn(move || {
            for _ in 0..1_000_000 {
                io::stderr().write_all(line.as_bytes()).expect("stderr is read");
            }
        });
    }
    let peer = Arc::new(Peer {
        marker: arguments.first().cloned().unwrap_or_default(),
        modern: has("modern"),
        picky: has("picky"),
        silent: has("silent"),
        asked: Mutex::default(),
        answered: Condvar::new(),
    });
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let message: Value = serde_json::from_str(&line).expect("one message on a line");
        if peer.picky && message["method"] == "server/discover" {
            eprintln!("expected initialize");
            return ExitCode::from(4);
        }
        if message["params"]["name"] == "deafen" {
            text(&message["id"], "deaf from now on");
            loop {
                thread::park();
            }
        }
        let peer = Arc::clone(&peer);
        thread::spawn(move || peer.take(&message));
    }
    if has("stubborn") {
        thread::sleep(Duration::from_mins(10));
    }
    ExitCode::SUCCESS
}

struct Peer {
    marker: String,
    /// Speaks 2026-07-28 alone; otherwise 2025-11-25 alone.
    modern: bool,
    /// Ends when the first message is not `initialize`, as servers made with older SDKs do.
    picky: bool,
    /// Answers nothing.
    silent: bool,
    /// Answers to our own requests, and notifications.
    asked: Mutex<Vec<Value>>,
    answered: Condvar,
}

impl Peer {
    fn take(&self, message: &Value) {
        let id = &message["id"];
        match message["method"].as_str() {
            _ if self.silent => {}
            None => self.note(message),
            Some(_) if id.is_null() => self.note(message),
            Some("server/discover") if self.modern => answer(
                id,
                &json!({
                    "resultType": "complete", "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private",
                }),
            ),
            Some("initialize") if !self.modern => answer(
                id,
                &json!({
                    "protocolVersion": "2025-11-25", "capabilities": capabilities(),
                    "serverInfo": {"name": "stdio-peer", "version": "1"},
                }),
            ),
            Some("resources/list") => {
                answer(id, &json!({"resources": [{"uri": "demo://a", "name": "a"}]}));
            }
            Some("resources/read") => {
                answer(id, &json!({"contents": [{"uri": message["params"]["uri"], "text": "A"}]}));
            }
            Some("ping") => answer(id, &json!({})),
            Some("tools/list") => {
                let mut tools = vec!["echo"];
                tools.extend(env::args().any(|mode| mode == "tells").then_some("environment"));
                let more = ["ask", "change", "change_later", "sleep"];
                tools.extend(more.into_iter().filter(|_| env::args().any(|mode| mode == "more")));
                let tools: Vec<Value> = tools
                    .into_iter()
                    .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}))
                    .collect();
                answer(id, &json!({ "tools": tools }));
            }
            Some("tools/call") => self.call(id, &message["params"]),
            Some(method) => refuse(id, &format!("no method {method}")),
        }
    }

    fn note(&self, message: &Value) {
        self.asked.lock().expect("nobody panicked").push(message.clone());
        self.answered.notify_all();
    }

    /// Waits for a message to us.
    fn heard(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut asked = self.asked.lock().expect("nobody panicked");
        loop {
            if let Some(found) = asked.iter().find(|one| wanted(one)) {
                return found.clone();
            }
            asked = self.answered.wait(asked).expect("nobody panicked");
        }
    }

    fn call(&self, id: &Value, params: &Value) {
        let arguments = &params["arguments"];
        let path = arguments["path"].as_str().unwrap_or_default();
        let count = arguments["count"].as_u64().and_then(|count| usize::try_from(count).ok());
        let count = count.unwrap_or_default();
        match params["name"].as_str().unwrap_or_default() {
            "never" => {}
            "die" => die(),
            "sleep" => {
                thread::sleep(Duration::from_millis(count as u64));
                text(id, "slept");
            }
            // What the caller took back.
            "cancelled" => text(id, &self.heard(|one| {
                one["method"] == "notifications/cancelled"
            })["params"]["requestId"].to_string()),
            "shout" => {
                let line = format!("{}\n", "e".repeat(999));
                for _ in 0..count / 1_000 {
                    io::stderr().write_all(line.as_bytes()).expect("stderr is read");
                }
                text(id, "shouted");
            }
            "long" => text(id, &"a".repeat(count)),
            "long_id_last" => {
                let content = "a".repeat(count);
                say(&format!(
                    "{{\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"{content}\"}}]}},\"jsonrpc\":\"2.0\",\"id\":{id}}}\n"
                ));
            }
            "long_garbage" => {
                say(&format!("{}\n", "x".repeat(count)));
                text(id, "said");
            }
            "long_riddle" => say(&format!("{{\"a\":\"{}\"}}\n", "x".repeat(count))),
            "not_a_number" => say(&format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[],\"x\":NaN}}}}\n"
            )),
            "batch" => say(&format!(
                "[{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}},{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[]}}}}]\n"
            )),
            "progress" => {
                let token = &params["_meta"]["progressToken"];
                say(&format!("{}\n", json!({"jsonrpc": "2.0", "method": "notifications/progress",
                    "params": {"progressToken": token, "progress": 1}})));
                text(id, "done");
            }
            "change" => {
                say("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n");
                text(id, "changed");
            }
            "change_later" => {
                text(id, "soon");
                say("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n");
            }
            // Asks us and tells what we said.
            "ask" => {
                let method = arguments["method"].as_str().unwrap_or("ping");
                let question = format!("about {id}");
                let params = json!({"message": "who are you?",
                    "requestedSchema": {"type": "object", "properties": {}}});
                say(&format!("{}\n", json!({"jsonrpc": "2.0", "id": question, "method": method,
                    "params": params})));
                let heard = self.heard(|one| one["id"] == question.as_str());
                text(id, &json!({"result": heard["result"], "error": heard["error"]}).to_string());
            }
            "read" => text(id, &match fs::read(path) {
                Ok(bytes) => format!("read {} bytes", bytes.len()),
                Err(error) => format!("not read: {:?}", error.kind()),
            }),
            "list" => text(id, &match fs::read_dir(path) {
                Ok(entries) => format!("{} entries", entries.count()),
                Err(error) => format!("not listed: {:?}", error.kind()),
            }),
            "write" => text(id, &match fs::write(path, "x") {
                Ok(()) => "written".to_owned(),
                Err(error) => format!("not written: {:?}", error.kind()),
            }),
            "environment" => {
                let variables: Vec<(String, String)> = env::vars().collect();
                let here = env::current_dir().unwrap_or_default();
                text(id, &json!({"variables": variables, "directory": here}).to_string());
            }
            "status" => text(id, &fs::read_to_string("/proc/self/status").unwrap_or_default()),
            "limits" => text(id, &fs::read_to_string("/proc/self/limits").unwrap_or_default()),
            "processes" => text(id, &processes().to_string()),
            // Starts another process that outlives its parent, if it may.
            "grandchild" => {
                let program = env::current_exe().expect("we run");
                let mut command = Command::new(program);
                if arguments["apart"] == true {
                    command.process_group(0);
                }
                command.args([&self.marker, "linger", "stubborn"]).stdin(Stdio::null());
                let started = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
                text(id, &started.map_or_else(|error| error.to_string(), |_| "started".to_owned()));
            }
            _ => text(id, &arguments.to_string()),
        }
    }
}

/// What it offers, in either mode.
fn capabilities() -> Value {
    let mut capabilities = json!({"tools": {"listChanged": true}});
    if env::args().any(|mode| mode == "more") {
        capabilities["resources"] = json!({"listChanged": true});
    }
    capabilities
}

#[expect(clippy::disallowed_methods, reason = "it dies with everything under way")]
fn die() {
    eprintln!("Error: it all went wrong");
    std::process::exit(3);
}

/// Goes on after SIGTERM.
fn stop_at_nothing() {
    use nix::sys::signal::{SigSet, Signal};
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    set.thread_block().expect("a known signal");
}

fn processes() -> usize {
    fs::read_dir("/proc").map_or(0, |entries| {
        entries
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok())
            .count()
    })
}

fn text(id: &Value, text: &str) {
    answer(id, &json!({"content": [{"type": "text", "text": text}]}));
}

fn answer(id: &Value, result: &Value) {
    say(&format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "result": result})));
}

fn refuse(id: &Value, words: &str) {
    let error = json!({"code": -32601, "message": words});
    say(&format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "error": error})));
}

/// A whole message at a time, whichever thread says it.
fn say(words: &str) {
    let mut stdout = io::stdout().lock();
    // Nobody reads any more: the end of our input comes next.
    let _gone = stdout.write_all(words.as_bytes()).and_then(|()| stdout.flush());
}
