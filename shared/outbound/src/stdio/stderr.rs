//! What a child says on its standard error: always read, so that it never waits for us; only the end
//! is kept.

use std::sync::{Arc, Mutex, PoisonError};

use domain::limits;
use secrecy::SecretString;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::words;

/// The end of what a child wrote to its standard error. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastWords(Arc<Mutex<Vec<u8>>>);

/// A pipe holds that much (pipe(7)).
const PIPE_BYTES: usize = 65_536;

impl LastWords {
    /// Reads until the end.
    pub(super) async fn collect(self, mut stderr: impl AsyncRead + Unpin) {
        let mut chunk = vec![0; PIPE_BYTES];
        while let Ok(read @ 1..) = stderr.read(&mut chunk).await {
            self.add(&chunk[..read]);
        }
    }

    fn add(&self, words: &[u8]) {
        let most = limits::STDIO_STDERR_BYTES.size();
        let words = &words[words.len().saturating_sub(most)..];
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let surplus = (kept.len() + words.len()).saturating_sub(most);
        kept.drain(..surplus);
        kept.extend_from_slice(words);
    }

    /// The last of it that fits an error, in one line, without the values that the child was given.
    /// Empty where there is none.
    pub(crate) fn shown(&self, secrets: &[SecretString]) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let masked = words::masked(&String::from_utf8_lossy(&kept), secrets);
        let line: Vec<&str> = masked.split_whitespace().collect();
        let line = line.join(" ");
        let surplus = line.chars().count().saturating_sub(limits::ERROR_MESSAGE_CHARS.size());
        words::untrusted(&line.chars().skip(surplus).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_end_is_kept_and_shown_in_one_line() {
        let words = LastWords::default();
        let said = [b"x".repeat(100_000), b"\nError: \x1b[31mno s3cret-token\r\n  at b".to_vec()];
        words.clone().collect(said.concat().as_slice()).await;
        assert_eq!(words.0.lock().unwrap().len(), limits::STDIO_STDERR_BYTES.size());
        let shown = words.shown(&["s3cret-token".to_owned().into()]);
        assert_eq!(shown.chars().count(), limits::ERROR_MESSAGE_CHARS.size() - 1);
        assert!(shown.ends_with("x Error: [31mno [secret] at b"), "{shown}");
    }
}
