//! Lines of a stream, each within a cap.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::Oversize;

/// As much as a pipe holds (pipe(7)).
const CHUNK: usize = 65_536;

pub(super) struct Lines<R> {
    reader: R,
    buffer: BytesMut,
    /// Of the buffer; no line end stands before.
    searched: usize,
    oversize: Option<Oversize>,
}

pub(super) enum Line {
    /// Without its end.
    Whole(Bytes),
    /// Over the cap, and not kept.
    TooLong(Oversize),
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, buffer: BytesMut::new(), searched: 0, oversize: None }
    }

    /// The next line, or `None` at the end; what stands before the end without a line end is a line
    /// too. `cap` is asked again as the line grows. Cancel-safe.
    pub(super) async fn next(&mut self, cap: impl Fn() -> u64) -> io::Result<Option<Line>> {
        loop {
            let end = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
            if let Some(end) = end.map(|end| self.searched + end) {
                let line = self.buffer.split_to(end + 1).freeze();
                self.searched = 0;
                return Ok(Some(self.line(&line.slice(..end))));
            }
            self.searched = self.buffer.len();
            if let Some(oversize) = &mut self.oversize {
                oversize.extend(&self.buffer);
                self.buffer.clear();
                self.searched = 0;
            } else if self.buffer.len() as u64 > cap() {
                self.oversize = Some(Oversize::begun(&self.buffer));
                // The large allocation goes with it.
                self.buffer = BytesMut::new();
                self.searched = 0;
            }
            self.buffer.reserve(CHUNK);
            if self.reader.read_buf(&mut self.buffer).await? == 0 {
                let rest = std::mem::take(&mut self.buffer).freeze();
                self.searched = 0;
                let nothing = rest.is_empty() && self.oversize.is_none();
                return Ok((!nothing).then(|| self.line(&rest)));
            }
        }
    }

    fn line(&mut self, rest: &Bytes) -> Line {
        match self.oversize.take() {
            Some(mut oversize) => {
                oversize.extend(rest);
                Line::TooLong(oversize)
            }
            None => Line::Whole(
                rest.strip_suffix(b"\r").map_or(rest.clone(), |line| rest.slice_ref(line)),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(input: &[u8], cap: u64) -> Vec<String> {
        let mut lines = Lines::new(input);
        let mut read = Vec::new();
        while let Some(line) = lines.next(|| cap).await.unwrap() {
            read.push(match line {
                Line::Whole(line) => String::from_utf8(line.to_vec()).unwrap(),
                Line::TooLong(oversize) => format!("{oversize:?}"),
            });
        }
        read
    }

    #[tokio::test]
    async fn either_line_end_and_a_last_line_without_one_are_read() {
        assert_eq!(read(b"a\r\nb\n\nc", 10).await, ["a", "b", "", "c"]);
        assert!(read(b"", 10).await.is_empty());
    }

    #[tokio::test]
    async fn a_line_over_the_cap_is_skipped_and_the_next_one_read() {
        let long = "x".repeat(300_000);
        let read = read(format!("a\n{long}\nb\n").as_bytes(), 1_000).await;
        assert_eq!((read[0].as_str(), read[2].as_str()), ("a", "b"));
        assert!(read[1].len() < 10_000);
    }
}
