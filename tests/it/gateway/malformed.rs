//! A thousand messages that are none, and a thousand requests with a fault; each gets an answer.

mod requests;

use std::time::Duration;

use futures::{StreamExt, stream};
use tests::peer::Setup;

use super::{Gateway, as_pairs, modern};

#[tokio::test]
async fn a_thousand_malformed_messages_each_get_a_clear_error() {
    let gateway = Gateway::new(Setup::modern()).await;
    let session = gateway.initialize("2025-03-26").await;
    let corpus = corpus();
    assert!(corpus.len() >= 1_000, "{}", corpus.len());

    let sent = stream::iter(corpus).map(|body| {
        let (gateway, session) = (&gateway, &session);
        async move {
            let (headers, _) = modern("tools/call", r#"{"name":"mcp__demo__echo"}"#);
            let modern = as_pairs(&headers);
            for headers in [&modern[..], &[("mcp-session-id", session.as_str())]] {
                let path = gateway.path();
                let answer = gateway.post_as(&gateway.token, &path, headers, body.clone());
                let reply = tokio::time::timeout(Duration::from_secs(10), answer)
                    .await
                    .unwrap_or_else(|_| panic!("no answer: {body:?}"));
                let shown = String::from_utf8_lossy(&body);
                assert!(matches!(reply.status, 200 | 400 | 404), "{shown}: {reply:?}");
                let (code, words) = error(&reply);
                assert!(
                    matches!(code, -32700 | -32603..=-32600 | -32022..=-32020),
                    "{shown}: {reply:?}"
                );
                assert_ne!(code, -32603, "{shown}: {reply:?}");
                assert!(words.len() > 8, "{shown}: {reply:?}");
            }
        }
    });
    sent.buffer_unordered(16).collect::<Vec<()>>().await;
    assert!(gateway.peer.calls().is_empty());
    assert!(gateway.invocations().await.is_empty());
}

/// The error, or the first one of a batch.
fn error(reply: &super::Reply) -> (i64, String) {
    let json = reply.json();
    let error = if json.is_array() { &json[0]["error"] } else { &json["error"] };
    (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
}

fn corpus() -> Vec<Vec<u8>> {
    let mut corpus: Vec<Vec<u8>> = Vec::new();
    // Cut off anywhere.
    let (_, whole) =
        modern("tools/call", r#"{"name":"mcp__demo__echo","arguments":{"a":[1,"\u00e9"]}}"#);
    corpus.extend((0..whole.len()).map(|end| whole.as_bytes()[..end].to_vec()));
    // A byte that no JSON text has, anywhere.
    corpus.extend((0..whole.len()).map(|at| {
        let mut bytes = whole.clone().into_bytes();
        bytes[at] = 0xff;
        bytes
    }));
    // Something else in place of each part.
    let others = [
        "null",
        "true",
        "0",
        "-1",
        "1.5",
        "1e999",
        "\"\"",
        "\"x\"",
        "[]",
        "[[]]",
        "{}",
        "[{}]",
        "\"\\ud800\"",
        "\"\\u0000\"",
        "99999999999999999999999999",
    ];
    for other in others {
        for (name, fits) in [
            ("jsonrpc", &[][..]),
            (
                "id",
                &[
                    "0",
                    "-1",
                    "\"\"",
                    "\"x\"",
                    "\"\\ud800\"",
                    "\"\\u0000\"",
                    "99999999999999999999999999",
                ],
            ),
            ("method", &[]),
            ("params", &[]),
        ] {
            if fits.contains(&other) {
                continue;
            }
            corpus.push(message(name, other).into_bytes());
        }
        // A tool that nobody has is asked for properly.
        if other != "\"x\"" {
            let params = format!(r#"{{"name":{other}}}"#);
            corpus.push(message("params", &params).into_bytes());
        }
        if other != "null" && other != "{}" {
            let params =
                format!(r#"{{"name":"mcp__demo__echo","arguments":{other},"requestState":1}}"#);
            corpus.push(message("params", &params).into_bytes());
        }
        if other != "{}" {
            corpus.push(other.as_bytes().to_vec());
        }
    }
    corpus.push(vec![b'['; 100_000]);
    corpus.push("{\"a\":".repeat(100_000).into_bytes());
    corpus.push(format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000)).into_bytes());
    corpus.push(vec![0; 1_000]);
    corpus.push(b"\xef\xbb\xbf{}".to_vec());
    while corpus.len() < 1_000 {
        // A number is no message, however many digits it has.
        corpus.push("7".repeat(corpus.len()).into_bytes());
    }
    corpus
}

/// A call with one member replaced.
fn message(name: &str, value: &str) -> String {
    let part = |part: &str, whole: &str| {
        let value = if part == name { value } else { whole };
        format!("\"{part}\":{value}")
    };
    let parts = [
        part("jsonrpc", "\"2.0\""),
        part("id", "1"),
        part("method", "\"tools/call\""),
        part("params", r#"{"name":7}"#),
    ];
    format!("{{{}}}", parts.join(","))
}
