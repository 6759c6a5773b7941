//! The log: one event a line on stderr.

use std::io;

use tracing_subscriber::{
    EnvFilter, fmt, fmt::MakeWriter, layer::SubscriberExt, util::SubscriberInitExt,
};

use crate::{config::LogFormat, terminal};

/// The log could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the log filter is not one")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    #[error("a log is set up already")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// Sends events that pass `filter` to stderr, for the whole process.
pub fn init(format: LogFormat, filter: &str) -> Result<(), Error> {
    let filter = EnvFilter::builder().parse(filter)?;
    let layer = fmt::layer().with_writer(Escaped(io::stderr)).with_ansi(false);
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        // Its fields are on one level, where log collectors look for them.
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).try_init()?,
        LogFormat::Text => registry.with(layer).try_init()?,
    }
    Ok(())
}

/// A writer behind which no event can drive the terminal or forge a line.
///
/// The whole line is escaped, not field by field: so nothing has to be remembered where an event
/// or a span is written. Colours would not survive that; they are off.
struct Escaped<W>(W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Escaped<W> {
    type Writer = Escaped<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Escaped(self.0.make_writer())
    }
}

impl<W: io::Write> io::Write for Escaped<W> {
    /// Takes one whole event with its line end, which is how the formatter hands it over.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let (line, end) = match text.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (&*text, ""),
        };
        // One write a line, so that lines of several threads do not mix.
        self.0.write_all(format!("{}{end}", terminal::escape(line)).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        sync::{Arc, Mutex},
    };

    use tracing_subscriber::{fmt, layer::SubscriberExt};

    use super::Escaped;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Page {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn say_something_hostile() {
        let span = tracing::info_span!("call", tool = "\u{1b}[2J");
        let _inside = span.enter();
        tracing::info!(peer = %"ok\nERROR forged \u{202e}", "said \u{9d}0;title");
    }

    #[test]
    fn a_peer_cannot_drive_the_terminal_through_a_text_log() {
        let page = Page::default();
        let copy = page.clone();
        let layer = fmt::layer().with_writer(Escaped(move || copy.clone())).with_ansi(false);
        tracing::subscriber::with_default(
            tracing_subscriber::registry().with(layer),
            say_something_hostile,
        );

        let text = page.text();
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        assert!(text.contains("ok\\nERROR forged \\u202e"), "{text}");
        assert!(!text.trim_end().contains(char::is_control), "{text:?}");
    }

    #[test]
    fn a_json_log_stays_json() {
        let page = Page::default();
        let copy = page.clone();
        let layer = fmt::layer().json().with_writer(Escaped(move || copy.clone()));
        tracing::subscriber::with_default(
            tracing_subscriber::registry().with(layer),
            say_something_hostile,
        );

        let text = page.text();
        assert!(text.contains("ok\\nERROR forged \\u202e"), "{text}");
        assert!(text.starts_with('{') && text.ends_with("}\n"), "{text}");
        assert!(!text.trim_end().contains(char::is_control), "{text:?}");
    }
}
