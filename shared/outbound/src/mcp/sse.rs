//! Event streams (WHATWG HTML, section 9.2), read leniently as that text asks: any line end, unknown
//! fields ignored, several `data` lines joined. rmcp's parser gives up on unknown fields and logs
//! the peer's lines.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;

/// One message of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// `event`; empty = `message`.
    pub(super) kind: String,
    pub(super) data: Bytes,
}

/// Takes pieces of a body as they come. Holds at most what it was fed since the last event.
#[derive(Debug, Default)]
pub(super) struct Parser {
    line: Vec<u8>,
    data: Vec<u8>,
    kind: String,
    id: Option<String>,
    /// The last line ended in CR: an LF that follows belongs to it.
    after_cr: bool,
    begun: bool,
    ready: VecDeque<Event>,
    /// Id of the last complete event, also of one without data: where the stream can be resumed.
    pub(super) last_event_id: Option<String>,
    /// What the server asks to wait before that.
    pub(super) retry: Option<Duration>,
}

impl Parser {
    /// The next complete event.
    pub(super) fn next(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    /// Bytes of the event that has not ended yet.
    pub(super) fn held(&self) -> u64 {
        (self.line.len() + self.data.len() + self.kind.len()) as u64
    }

    /// What is held of it: its data, and the line under way.
    pub(super) fn unfinished(&self) -> (&[u8], &[u8]) {
        (&self.data, &self.line)
    }

    /// For the stream that goes on where this one broke: an event cut in two comes again.
    pub(super) fn restart(self) -> Self {
        Self { last_event_id: self.last_event_id, retry: self.retry, ..Self::default() }
    }

    /// The data of the event that a clean end of the stream leaves without its blank line.
    pub(super) fn left(&self) -> Option<Bytes> {
        let (line, data) = (self.line.clone(), self.data.clone());
        let mut rest = Self { line, data, begun: self.begun, ..Self::default() };
        rest.feed(b"\n\n");
        rest.next().map(|event| event.data)
    }

    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                self.line.extend_from_slice(bytes);
                return;
            };
            self.after_cr = bytes[end] == b'\r';
            if self.line.is_empty() {
                self.end_line(&bytes[..end]);
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(&bytes[..end]);
                self.end_line(&line);
            }
            bytes = &bytes[end + 1..];
        }
    }

    fn end_line(&mut self, mut line: &[u8]) {
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            return self.end_event();
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = || String::from_utf8_lossy(value).into_owned();
        match field {
            b"data" => {
                self.data.extend_from_slice(value);
                self.data.push(b'\n');
            }
            b"event" => self.kind = text(),
            b"id" if !value.contains(&0) => self.id = Some(text()),
            b"retry" => {
                self.retry = text().parse().ok().map(Duration::from_millis).or(self.retry);
            }
            _ => {}
        }
    }

    fn end_event(&mut self) {
        if let Some(id) = self.id.take() {
            self.last_event_id = Some(id).filter(|id| !id.is_empty());
        }
        let kind = std::mem::take(&mut self.kind);
        let mut data = std::mem::take(&mut self.data);
        data.pop();
        if !data.is_empty() {
            self.ready.push_back(Event { kind, data: data.into() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> (Vec<(String, String)>, Parser) {
        let mut parser = Parser::default();
        let mut events = Vec::new();
        for piece in pieces {
            parser.feed(piece);
            while let Some(Event { kind, data }) = parser.next() {
                events.push((kind, String::from_utf8(data.to_vec()).unwrap()));
            }
        }
        (events, parser)
    }

    fn pair(kind: &str, data: &str) -> (String, String) {
        (kind.to_owned(), data.to_owned())
    }

    #[test]
    fn every_line_end_and_several_data_lines_are_understood() {
        for end in ["\n", "\r\n", "\r"] {
            let stream =
                ["\u{feff}: hello", "event: message", "data: {", "data:  \"a\":1}", "", ""];
            let stream = stream.join(end);
            let expected = vec![pair("message", "{\n \"a\":1}")];
            assert_eq!(read(&[stream.as_bytes()]).0, expected, "{end:?}");
            let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
            assert_eq!(read(&bytes).0, expected, "{end:?}, byte by byte");
        }
    }

    #[test]
    fn unknown_fields_and_lines_without_colon_are_ignored() {
        let (events, _) = read(&[b"weird: 1\nnothing\ndata\ndata: x\n\n"]);
        assert_eq!(events, [pair("", "\nx")]);
    }

    #[test]
    fn what_the_end_cuts_off_is_left() {
        for stream in ["data: 1\n\nid: 2\ndata: x", "data: x\n", "data: x\r"] {
            let mut parser = Parser::default();
            parser.feed(stream.as_bytes());
            while parser.next().is_some() {}
            assert_eq!(parser.left().unwrap(), "x", "{stream:?}");
        }
        assert_eq!(Parser::default().left(), None);
    }

    #[test]
    fn an_event_without_data_only_moves_the_resume_point() {
        let (events, parser) =
            read(&[b"id: 5\nretry: 250\ndata:\n\nretry: soon\n\nid: 6\ndata: cut"]);
        assert_eq!(events, []);
        assert_eq!(parser.last_event_id.as_deref(), Some("5"));
        assert_eq!(parser.retry, Some(Duration::from_millis(250)));
    }
}
