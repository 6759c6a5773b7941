//! A line as a shell would take it apart, as far as our documents need it.

/// Words of a line; quotes and backslashes are taken away, `#` begins a comment.
pub(super) fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('\\', None) => word.get_or_insert_default().extend(chars.next()),
            ('#', None) if word.is_none() => break,
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn a_line_is_taken_apart_as_a_shell_does() {
    let line = r#"A=1 b 'c d' "e f"g h\ i '' # j"#;
    assert_eq!(split(line), ["A=1", "b", "c d", "e fg", "h i", ""]);
}
