//! HTTP/1.1 by hand (RFC 9112): one connection, one request at a time.

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};
use url::Url;

use crate::callers::Access;

/// Dropped, the socket is closed and nobody is told anything.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    host: String,
    path: String,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// `Mcp-Session-Id`, if there was one.
    pub(crate) mcp_session: Option<String>,
    pub(crate) body: String,
}

impl Connection {
    pub(crate) async fn open(url: &Url) -> anyhow::Result<Self> {
        let address = url.socket_addrs(|| None)?;
        let stream = TcpStream::connect(&*address).await.context("no connection")?;
        stream.set_nodelay(true)?;
        let host = url[url::Position::BeforeHost..url::Position::AfterPort].to_owned();
        Ok(Self { stream: BufReader::new(stream), host, path: url.path().to_owned() })
    }

    /// `tools/call` of 2026-07-28; the body of its answer.
    pub(crate) async fn call_modern(
        &mut self,
        access: &Access,
        id: u64,
        arguments: &Value,
    ) -> anyhow::Result<String> {
        let call = json!({
            "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": "1" },
                    "io.modelcontextprotocol/clientCapabilities": {},
                },
                "name": access.tool,
                "arguments": arguments,
            },
        });
        let headers = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", &access.tool),
        ];
        let reply = self.post(access.token.as_deref(), &headers, &call).await?;
        if reply.status == 200 {
            Ok(reply.body)
        } else {
            bail!("status {}: {}", reply.status, reply.body)
        }
    }

    pub(crate) async fn post(
        &mut self,
        token: Option<&str>,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> anyhow::Result<Reply> {
        let body = body.to_string();
        let mut request = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\ncontent-length: {}\r\n",
            self.path,
            self.host,
            body.len()
        );
        if let Some(token) = token {
            request.extend(["authorization: Bearer ", token, "\r\n"]);
        }
        for (name, value) in headers {
            request.extend([*name, ": ", *value, "\r\n"]);
        }
        request += "\r\n";
        request += &body;
        self.stream.write_all(request.as_bytes()).await?;
        self.read().await.context("no answer")
    }

    async fn read(&mut self) -> anyhow::Result<Reply> {
        let start = self.line().await?;
        let status = start.split(' ').nth(1).and_then(|status| status.parse().ok());
        let mut reply = Reply {
            status: status.with_context(|| format!("not HTTP: {start}"))?,
            mcp_session: None,
            body: String::new(),
        };
        let (mut length, mut chunked) = (0, false);
        loop {
            let line = self.line().await?;
            let Some((name, value)) = line.split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse()?,
                "transfer-encoding" => chunked = true,
                "mcp-session-id" => reply.mcp_session = Some(value.trim().to_owned()),
                _ => {}
            }
        }
        let mut body = Vec::new();
        if chunked {
            loop {
                let size = usize::from_str_radix(&self.line().await?, 16)?;
                self.take(size, &mut body).await?;
                self.line().await?;
                if size == 0 {
                    break;
                }
            }
        } else {
            self.take(length, &mut body).await?;
        }
        reply.body = String::from_utf8(body)?;
        Ok(reply)
    }

    async fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).await?;
        anyhow::ensure!(read > 0, "the connection ended");
        Ok(line.trim_end().to_owned())
    }

    async fn take(&mut self, bytes: usize, body: &mut Vec<u8>) -> anyhow::Result<()> {
        let start = body.len();
        body.resize(start + bytes, 0);
        self.stream.read_exact(&mut body[start..]).await?;
        Ok(())
    }
}
