//! A child's pipes: one message a line (MCP 2026-07-28, basic/transports/stdio).

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use domain::{Code, limits};
use secrecy::SecretString;
use tokio::{
    io::AsyncWriteExt,
    process::{ChildStdin, ChildStdout},
    sync::mpsc,
};

use super::{
    Outgoing, Table,
    lines::{Line, Lines},
    sniff,
};
use crate::{
    mcp::channel::Means,
    stdio::{Child, Life, Watch, ending},
};

/// Reads and writes the pipes of a child until it ends.
pub(super) fn attend(
    means: &Means,
    own: bool,
    secrets: Vec<SecretString>,
    child: Child,
) -> (Arc<Table>, Life, mpsc::Sender<Outgoing>) {
    let Child { stdin, stdout, life, starting: _starting } = child;
    let (outbox, orders) = mpsc::channel(limits::DUPLEX_QUEUE.size());
    let table = Table::new(means, own, secrets.clone(), outbox.clone());
    means.tasks.spawn(write(Arc::clone(&table), life.watch(), stdin, orders));
    means.tasks.spawn(read(Arc::clone(&table), life.watch(), stdout, secrets));
    (table, life, outbox)
}

/// Writes message after message. A child that does not read holds up nobody but its own callers.
async fn write(
    table: Arc<Table>,
    watch: Watch,
    mut stdin: ChildStdin,
    mut orders: mpsc::Receiver<Outgoing>,
) {
    let work = async {
        while let Some(Outgoing { id, body }) = orders.recv().await {
            if id.is_some_and(|id| !table.begin(id)) {
                continue;
            }
            if let Err(error) = stdin.write_all(&framed(&body)).await {
                // Earlier answers may still be on their way: the reader decides about the end.
                tracing::debug!(%error, "a stdio server does not read any more");
                if let Some(id) = id {
                    let words = "the server's program closed its input";
                    table.fail(id, Code::UpstreamUnavailable, words);
                }
                return;
            }
        }
    };
    tokio::select! {
        () = watch.stopping() => {}
        () = table.ended() => {}
        () = work => {}
    }
    // Nobody can be served without it: the child ends by the end of its input, or is ended.
    orders.close();
    drop(stdin);
    watch.stop();
}

/// One line. Line ends can only stand between the tokens of JSON, where a blank is the same.
fn framed(body: &Bytes) -> Bytes {
    let mut line = BytesMut::with_capacity(body.len() + 1);
    line.extend(body.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }));
    line.put_u8(b'\n');
    line.freeze()
}

async fn read(table: Arc<Table>, watch: Watch, stdout: ChildStdout, secrets: Vec<SecretString>) {
    let mut lines = Lines::new(stdout);
    let mut stray = Stray::default();
    let (mut code, mut words) = (Code::UpstreamUnavailable, None);
    let mut gone = false;
    loop {
        let next = lines.next(|| table.largest());
        let line = if gone {
            tokio::time::timeout(limits::STDIO_LAST_LINES_MS.millis(), next)
                .await
                .unwrap_or(Ok(None))
        } else {
            tokio::select! {
                biased;
                line = next => line,
                () = watch.gone() => {
                    gone = true;
                    continue;
                }
            }
        };
        match line {
            Ok(Some(Line::Whole(line))) if line.is_empty() => {}
            Ok(Some(Line::Whole(line))) if sniff::is_json(&line) => table.take(&line),
            Ok(Some(Line::Whole(line))) => stray.met(line.len()),
            Ok(Some(Line::TooLong(line))) => {
                if !table.take_oversize(&line) {
                    code = Code::ResponseTooLarge;
                    words = Some("the server sent a message that is larger than any limit");
                    break;
                }
            }
            Ok(None) => break,
            Err(error) => {
                tracing::debug!(%error, "the output of a stdio server cannot be read");
                break;
            }
        }
    }
    watch.stop();
    let status = tokio::time::timeout(limits::STDIO_LAST_LINES_MS.millis(), watch.gone_as())
        .await
        .ok()
        .flatten();
    let said = watch.last_words.shown(&secrets);
    let words = words.map_or_else(|| ending(status), ToOwned::to_owned);
    table.end(code, &words, Some(&said));
    stray.told();
}

/// Lines that are no messages: a program that prints where it should not. Some do at each call, so
/// only the first is told at once.
#[derive(Default)]
struct Stray {
    lines: u64,
    bytes: usize,
}

impl Stray {
    fn met(&mut self, bytes: usize) {
        self.lines += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.lines == 1 {
            tracing::warn!(bytes, "a stdio server printed a line that is no message: skipped");
        }
    }

    fn told(&self) {
        if self.lines > 1 {
            let Self { lines, bytes } = self;
            tracing::warn!(lines, bytes, "lines of a stdio server that were no messages");
        }
    }
}
