//! A thousand requests with one fault each, from a seed: in the head, in the framing, in the body, or between
//! them. What else stands in a request is in order, or odd and allowed.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use serde_json::Value;
use tests::peer::Setup;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::super::{Gateway, modern};

const SEED: u64 = 0x0b1a_5ed0_0b1a_5ed0;
const REQUESTS: usize = 1_000;

#[tokio::test]
async fn a_thousand_requests_with_one_fault_are_each_told_so() {
    let gateway = Gateway::new(Setup::modern()).await;
    let scene = Scene {
        host: format!("127.0.0.1:{}", gateway.world.url.port().unwrap()),
        path: gateway.path(),
        token: gateway.token.clone(),
        mcp_session: gateway.initialize("2025-06-18").await,
    };
    let mut dice = Dice(SEED);
    let requests: Vec<_> = (0..REQUESTS).map(|_| scene.faulty(&mut dice)).collect();
    let answers = stream::iter(&requests).map(async |(fault, request)| {
        let begun = Instant::now();
        let answer =
            timeout(Duration::from_secs(10), exchange(&scene.host, &request.bytes(), fault.ends()))
                .await;
        let answer = answer.unwrap_or_else(|_| panic!("seed {SEED:#x}: {} hangs", fault.name()));
        if let Err(words) = fault.is_told(&answer) {
            let sent =
                String::from_utf8_lossy(&request.bytes()).chars().take(2_000).collect::<String>();
            panic!("seed {SEED:#x}: {}: {words}\n{sent}\n=>\n{answer}", fault.name());
        }
        begun.elapsed()
    });
    let mut took: Vec<Duration> = answers.buffer_unordered(8).collect().await;
    took.sort_unstable();
    let most = took[REQUESTS * 99 / 100];
    assert!(most < Duration::from_secs(1), "one of a hundred takes {most:?}");

    assert!(gateway.peer.calls().is_empty(), "a server was called");
    assert!(gateway.invocations().await.is_empty(), "a call was recorded");
    let works = gateway.modern("tools/call", r#"{"name":"mcp__demo__echo","arguments":{}}"#).await;
    assert_eq!(works.status, 200, "{works:?}");
}

/// Deterministic: splitmix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

#[derive(Clone, Copy)]
enum Fault {
    /// The head or the body says something wrong: a problem or a JSON-RPC error says what.
    Said(&'static str),
    /// It is no HTTP request: 4xx, or the end of the connection.
    Framing(&'static str),
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Self::Said(name) | Self::Framing(name) => name,
        }
    }

    /// Whether the client closes its side, so that what it has promised never comes.
    fn ends(self) -> bool {
        matches!(self, Self::Framing(_))
    }

    fn is_told(self, answer: &str) -> Result<(), String> {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
        let status: u16 = head.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
        let refused = (400..500).contains(&status);
        if self.ends() {
            return if answer.is_empty() || refused { Ok(()) } else { Err(format!("{status}")) };
        }
        let json: Value = serde_json::from_str(body).map_err(|_| format!("{status} is no JSON"))?;
        let first = if json.is_array() { &json[0] } else { &json };
        let rpc = &first["error"];
        let clear = |words: &Value| words.as_str().is_some_and(|words| words.len() > 8);
        if rpc.is_object() && (refused || status == 200) {
            let code = rpc["code"].as_i64().unwrap_or(0);
            // Parse error, invalid request, no such method, invalid params, and those of MCP.
            let known = matches!(code, -32700 | -32602..=-32600 | -32022..=-32020);
            return if known && clear(&rpc["message"]) { Ok(()) } else { Err(rpc.to_string()) };
        }
        if refused && json["code"].is_string() && clear(&json["detail"]) {
            return Ok(());
        }
        Err(format!("{status} without a clear error"))
    }
}

#[derive(Clone)]
struct Request {
    method: String,
    path: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    /// In place of `Content-Length`, if something else stands there.
    framing: Option<Vec<u8>>,
}

impl Request {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.path).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        let length = format!("content-length: {}\r\n", self.body.len()).into_bytes();
        bytes.extend(self.framing.as_ref().unwrap_or(&length));
        bytes.extend(b"\r\n");
        bytes.extend(&self.body);
        bytes
    }

    fn set(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.remove(name);
        self.add(name, value);
    }

    fn add(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
    }

    fn remove(&mut self, name: &str) {
        self.headers.retain(|(one, _)| one != name);
    }
}

struct Scene {
    host: String,
    path: String,
    token: String,
    mcp_session: String,
}

impl Scene {
    fn faulty(&self, dice: &mut Dice) -> (Fault, Request) {
        let is_modern = dice.below(2) == 0;
        let mut request = self.good(is_modern, dice);
        self.oddity(dice, &mut request);
        let fault = match dice.below(10) {
            0..4 => in_body(dice, &mut request),
            4..6 => in_head(dice, &mut request),
            6..8 if is_modern => between_modern(dice, &mut request),
            6..8 => between_legacy(dice, &mut request),
            _ => in_framing(dice, &mut request),
        };
        (fault, request)
    }

    fn good(&self, is_modern: bool, dice: &mut Dice) -> Request {
        let call = r#"{"name":"mcp__demo__echo","arguments":{"a":[1,"\u00e9"]}}"#;
        let (method, params) = dice.one(&[("tools/call", call), ("tools/list", "{}")]);
        let mut request = Request {
            method: "POST".to_owned(),
            path: self.path.clone(),
            headers: Vec::new(),
            body: Vec::new(),
            framing: None,
        };
        request.add("host", &self.host);
        request.add("authorization", format!("Bearer {}", self.token));
        request.add("content-type", "application/json");
        request.add("accept", "application/json, text/event-stream");
        request.add("connection", "close");
        if is_modern {
            let (headers, body) = modern(method, params);
            for (name, value) in headers {
                request.add(&name, value);
            }
            request.body = body.into_bytes();
        } else {
            request.add("mcp-session-id", &self.mcp_session);
            let body =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
            request.body = body.into_bytes();
        }
        request
    }

    /// What may be there.
    fn oddity(&self, dice: &mut Dice, request: &mut Request) {
        match dice.below(6) {
            0 => request.add("x-odd", b"\xff\xfe".as_slice()),
            1 => request.set("content-type", "Application/JSON ; charset=\"utf-8\""),
            2 => request.set("accept", "text/*;q=0.1,application/*"),
            3 => request.body = [b" \r\n\t".as_slice(), &request.body, b"\n"].concat(),
            4 => request.add("origin", format!("http://{}", self.host)),
            _ => {}
        }
    }
}

fn in_head(dice: &mut Dice, request: &mut Request) -> Fault {
    type Edit = fn(&mut Request);
    let faults: [(&str, Edit); 26] = [
        ("no content type", |it| it.remove("content-type")),
        ("text", |it| it.set("content-type", "text/plain")),
        ("form", |it| it.set("content-type", "multipart/form-data; boundary=x")),
        ("nearly JSON", |it| it.set("content-type", "application/jsonx")),
        ("empty content type", |it| it.set("content-type", "")),
        ("content type in Latin 1", |it| it.set("content-type", b"application/json\xe9")),
        ("accepts HTML", |it| it.set("accept", "text/html")),
        ("accepts JSON alone", |it| it.set("accept", "application/json")),
        ("accepts streams alone", |it| it.set("accept", "text/event-stream")),
        ("accepts no JSON", |it| it.set("accept", "application/json;q=0, text/event-stream")),
        ("accepts noise", |it| it.set("accept", "/,;;=,*")),
        ("nobody", |it| it.remove("authorization")),
        ("basic", |it| it.set("authorization", "Basic YTpi")),
        ("no token", |it| it.set("authorization", "Bearer ")),
        ("unknown token", |it| it.set("authorization", "Bearer blw_0000")),
        ("token in Latin 1", |it| it.set("authorization", b"Bearer \xe9\xff")),
        ("long token", |it| it.set("authorization", format!("Bearer {}", "x".repeat(50_000)))),
        ("two people", |it| it.add("authorization", "Bearer blw_0000")),
        ("foreign host", |it| it.set("host", "evil.test")),
        ("two hosts", |it| it.add("host", "evil.test")),
        ("foreign origin", |it| it.set("origin", "https://evil.test")),
        ("origin null", |it| it.set("origin", "null")),
        ("no session", |it| "/mcp/%00".clone_into(&mut it.path)),
        ("foreign session", |it| {
            "/mcp/019a0000-0000-7000-8000-000000000000".clone_into(&mut it.path);
        }),
        ("no such method", |it| "PATCH".clone_into(&mut it.method)),
        ("made-up method", |it| "FROBNICATE".clone_into(&mut it.method)),
    ];
    let (name, edit) = dice.one(&faults);
    edit(request);
    Fault::Said(name)
}

fn between_modern(dice: &mut Dice, request: &mut Request) -> Fault {
    type Edit = fn(&mut Request);
    let faults: [(&str, Edit); 14] = [
        ("version missing", |it| it.remove("mcp-protocol-version")),
        ("version of another era", |it| it.set("mcp-protocol-version", "2025-06-18")),
        ("version to come", |it| it.set("mcp-protocol-version", "2027-01-01")),
        ("version is noise", |it| it.set("mcp-protocol-version", b"\xff")),
        ("version twice", |it| it.add("mcp-protocol-version", "2025-06-18")),
        ("version empty", |it| it.set("mcp-protocol-version", "")),
        ("method missing", |it| it.remove("mcp-method")),
        ("another method", |it| it.set("mcp-method", "ping")),
        ("method in capitals", |it| it.set("mcp-method", "TOOLS/CALL")),
        ("method twice", |it| it.add("mcp-method", "tools/list")),
        ("method is noise", |it| it.set("mcp-method", b"\xc3\x28")),
        ("no capabilities", |it| swap(it, "clientCapabilities\":{}", "clientCapabilities\":[]")),
        ("client is a text", |it| {
            swap(it, "{\"name\":\"t\",\"version\":\"1\"}", "\"t\"");
        }),
        ("version is a number", |it| swap(it, "\"2026-07-28\"", "20260728")),
    ];
    let (name, edit) = dice.one(&faults);
    edit(request);
    if request.headers.iter().any(|(name, _)| name == "mcp-name") && dice.below(2) == 0 {
        // One more: what a fault hides must not become one of ours.
        let names = [b"mcp__demo__other".as_slice(), b"=?base64?!!?=", b"=?base64?/w==?=", b"\xff"];
        request.set("mcp-name", dice.one(&names));
    }
    Fault::Said(name)
}

fn between_legacy(dice: &mut Dice, request: &mut Request) -> Fault {
    type Edit = fn(&mut Request);
    let faults: [(&str, Edit); 9] = [
        ("MCP session missing", |it| it.remove("mcp-session-id")),
        ("MCP session empty", |it| it.set("mcp-session-id", "")),
        ("MCP session is noise", |it| it.set("mcp-session-id", b"\xff\xfe")),
        ("MCP session made up", |it| {
            it.set("mcp-session-id", "019a0000-0000-7000-8000-000000000000");
        }),
        ("MCP session very long", |it| it.set("mcp-session-id", "A".repeat(60_000))),
        ("MCP session twice", |it| it.add("mcp-session-id", "x")),
        ("MCP session cut", |it| {
            for (name, value) in &mut it.headers {
                if name == "mcp-session-id" {
                    value.truncate(value.len() - 8);
                }
            }
        }),
        ("version to come", |it| it.set("mcp-protocol-version", "2027-01-01")),
        ("version of the other era", |it| it.set("mcp-protocol-version", "2026-07-28")),
    ];
    let (name, edit) = dice.one(&faults);
    edit(request);
    Fault::Said(name)
}

fn in_framing(dice: &mut Dice, request: &mut Request) -> Fault {
    let lengths: [(&str, &[u8]); 12] = [
        ("negative length", b"content-length: -1\r\n"),
        ("length in words", b"content-length: ten\r\n"),
        ("huge length", b"content-length: 99999999999999999999999\r\n"),
        ("two lengths", b"content-length: 3\r\ncontent-length: 4\r\n"),
        ("length and chunks", b"content-length: 3\r\ntransfer-encoding: chunked, identity\r\n"),
        ("no chunks", b"transfer-encoding: chunked\r\n"),
        ("unknown coding", b"transfer-encoding: bogus\r\n"),
        ("folded header", b"x-a: b\r\n c\r\ncontent-length: 2\r\n"),
        ("space in a name", b"x a: b\r\n"),
        ("no name", b": b\r\n"),
        ("NUL in a value", b"x-a: \0\r\n"),
        ("bare line end", b"x-a: b\rc\r\n"),
    ];
    let many = "x-many: 1\r\n".repeat(2_000);
    let long = format!("x-long: {}\r\n", "x".repeat(1_000_000));
    match dice.below(lengths.len() + 3) {
        0 => request.framing = Some(many.into_bytes()),
        1 => request.framing = Some(long.into_bytes()),
        // The rest never comes: the client closes its side.
        2 => request.framing = Some(b"content-length: 100000\r\n".to_vec()),
        _ => {
            let (name, framing) = dice.one(&lengths);
            request.framing = Some(framing.to_vec());
            return Fault::Framing(name);
        }
    }
    Fault::Framing("more, longer or less than said")
}

fn in_body(dice: &mut Dice, request: &mut Request) -> Fault {
    let whole = request.body.trim_ascii().to_vec();
    let text = String::from_utf8(whole.clone()).unwrap();
    let replace = |from: &str, to: &str| text.replacen(from, to, 1).into_bytes();
    let method = if text.contains("tools/call") { "tools/call" } else { "tools/list" };
    let quoted = format!("\"{method}\"");
    let deep = 200 + dice.below(100_000);
    let (name, body) = match dice.below(22) {
        0 => ("cut off", whole[..dice.below(whole.len())].to_vec()),
        1 => {
            let mut bytes = whole;
            let at = dice.below(bytes.len());
            bytes[at] = dice.one(&[0xff, 0xc0, 0x80, 0x00, 0x1f]);
            ("a byte that JSON does not have", bytes)
        }
        2 => (
            "goes on",
            [whole, dice.one(&["x", "{}", "]", ",", "\0"]).as_bytes().to_vec()].concat(),
        ),
        3 => ("UTF-16", text.encode_utf16().flat_map(u16::to_be_bytes).collect()),
        4 => ("byte order mark", [b"\xef\xbb\xbf".to_vec(), whole].concat()),
        5 => {
            ("old JSON-RPC", replace("\"2.0\"", dice.one(&["\"1.0\"", "2.0", "null", "[\"2.0\"]"])))
        }
        6 => ("id of a wrong type", {
            let ids = ["null", "1.5", "1e400", "true", "{}", "[1]", "-0.0"];
            replace("\"id\":1", &format!("\"id\":{}", dice.one(&ids)))
        }),
        7 => (
            "very long id",
            replace("\"id\":1", &format!("\"id\":{}", "9".repeat(300 + deep % 999))),
        ),
        8 => ("no id", replace("\"id\":1,", "")),
        9 => (
            "method of a wrong type",
            replace(&quoted, dice.one(&["7", "null", "[]", "{}", "true"])),
        ),
        10 => ("lone surrogate", replace(&quoted, "\"\\ud800\"")),
        11 => (
            "method twice, and not the same",
            replace(&quoted, &format!("{quoted},\"method\":\"x/y\"")),
        ),
        12 => ("unknown method", replace(&quoted, "\"tools/frobnicate\"")),
        13 => ("params of a wrong type", {
            let start = text.find("\"params\":").unwrap() + "\"params\":".len();
            format!("{}{}}}", &text[..start], dice.one(&["7", "[]", "\"x\"", "null", "[{}]"]))
                .into_bytes()
        }),
        14 => ("a deep list where an object stands", {
            let nest = format!("{}1{}", "[".repeat(deep), "]".repeat(deep));
            let part = if method == "tools/call" { "\"arguments\":" } else { "\"params\":" };
            let (before, _) = text.split_once(part).unwrap();
            let open = before.matches('{').count() - before.matches('}').count();
            format!("{before}{part}{nest}{}", "}".repeat(open)).into_bytes()
        }),
        15 => ("deep and never closed", "{\"a\":".repeat(deep).into_bytes()),
        16 => {
            ("an answer that nobody waits for", br#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_vec())
        }
        17 => ("empty batch", b"[]".to_vec()),
        18 => ("batch in a batch", format!("[[{text}]]").into_bytes()),
        19 => ("long batch", format!("[{}1]", "1,".repeat(100 + deep % 1_000)).into_bytes()),
        20 => (
            "no object",
            dice.one(&["7", "\"x\"", "null", "true", "1e999", "-"]).as_bytes().to_vec(),
        ),
        _ => ("large", [b"\"".to_vec(), vec![b'x'; 4_100_000], b"\"".to_vec()].concat()),
    };
    request.body = body;
    Fault::Said(name)
}

fn swap(request: &mut Request, from: &str, to: &str) {
    let text = String::from_utf8(request.body.clone()).unwrap();
    assert!(text.contains(from), "{from} is not in {text}");
    request.body = text.replace(from, to).into_bytes();
}

/// All that comes back until the node closes.
async fn exchange(host: &str, bytes: &[u8], ends: bool) -> String {
    let mut stream = TcpStream::connect(host).await.unwrap();
    let (mut reads, mut writes) = stream.split();
    // It may answer and close before it has read all.
    let write = async {
        let _ = writes.write_all(bytes).await;
        if ends {
            let _ = writes.shutdown().await;
        }
    };
    let mut answer = Vec::new();
    let ((), _) = tokio::join!(write, reads.read_to_end(&mut answer));
    String::from_utf8_lossy(&answer).into_owned()
}
