//! Text on a page: never taken for markup, and about as wide as it will be.

use std::borrow::Cow;

/// The text with everything replaced that markup is made of, in an element or an attribute.
/// Characters that a page may not contain become U+FFFD.
pub fn escape(text: &str) -> Cow<'_, str> {
    let special = |c: char| {
        matches!(c, '&' | '<' | '>' | '"' | '\'' | '\u{fffe}' | '\u{ffff}')
            || (c.is_control() && c != '\n' && c != '\t')
    };
    if !text.contains(special) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if special(c) => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped.into()
}

/// The text as [`escape`] gives it, with what stands between backticks as code. One that has no
/// partner stays what it is.
pub(super) fn marked(text: &str) -> String {
    let mut parts = text.split('`').peekable();
    let mut out = String::with_capacity(text.len() + 16);
    let mut inside = false;
    while let Some(part) = parts.next() {
        match (inside, parts.peek().is_some()) {
            (true, true) => {
                out.push_str("<code>");
                out.push_str(&breaking(part));
                out.push_str("</code>");
            }
            (true, false) => {
                out.push('`');
                out.push_str(&escape(part));
            }
            (false, _) => out.push_str(&escape(part)),
        }
        inside = !inside;
    }
    out
}

/// A long name as [`escape`] gives it, which may go on in another line where a part of it ends.
pub(super) fn breaking(name: &str) -> String {
    let parts: Vec<Cow<str>> = name.split_inclusive('/').map(escape).collect();
    parts.join("<wbr/>")
}

/// How wide a text is at most, as a multiple of its font's size: which font a reader's system
/// takes is not known, so this goes by the widest of the usual ones (DejaVu Sans).
pub(super) fn width(text: &str) -> f64 {
    let em = |c: char| match c {
        'i' | 'j' | 'l' | '\'' | '|' | '.' | ',' | ':' | ';' | 'I' | ' ' => 0.34,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '/' | '-' | '!' => 0.43,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 1.0,
        'A'..='Z' | '_' | '+' | '=' | '<' | '>' | '~' | '#' | '&' => 0.8,
        '\u{0}'..='\u{7f}' => 0.64,
        '\u{80}'..='\u{2fff}' => 0.9,
        _ => 1.1,
    };
    text.chars().map(em).sum()
}

/// The text, or its beginning and its end, so that it is no wider than `most` (of the font's
/// size). Names of nodes and variables differ at both ends.
pub(super) fn shorten(text: &str, most: f64) -> Cow<'_, str> {
    if width(text) <= most {
        return text.into();
    }
    let room = (most - width("…")) / 2.0;
    let fitting = |chars: &mut dyn Iterator<Item = char>| {
        let mut used = 0.0;
        let mut one = [0; 4];
        let kept: String = chars
            .take_while(|c| {
                used += width(c.encode_utf8(&mut one));
                used <= room
            })
            .collect();
        kept
    };
    let start = fitting(&mut text.chars());
    let end: String = fitting(&mut text.chars().rev()).chars().rev().collect();
    format!("{start}…{end}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_text() {
        assert_eq!(escape("a < b & \"c\" > 'd'"), "a &lt; b &amp; &quot;c&quot; &gt; &#39;d&#39;");
        assert_eq!(escape("bell\u{7}\ttab\n"), "bell\u{fffd}\ttab\n");
        assert!(matches!(escape("plain, ümläut, 中文"), Cow::Borrowed(_)));
    }

    #[test]
    fn backticks_are_code() {
        assert_eq!(marked("a `b < c` d"), "a <code>b &lt; c</code> d");
        assert_eq!(marked("`a` and `b`"), "<code>a</code> and <code>b</code>");
        assert_eq!(marked("a ` b"), "a ` b");
        assert_eq!(marked("`a` ` <b>"), "<code>a</code> ` &lt;b&gt;");
        assert_eq!(marked(""), "");
    }

    #[test]
    fn names_break_between_their_parts() {
        assert_eq!(breaking("a/<b>/c"), "a/<wbr/>&lt;b&gt;/<wbr/>c");
        assert_eq!(breaking("MatMul"), "MatMul");
        assert_eq!(breaking(""), "");
    }

    #[test]
    fn long_names_keep_both_ends() {
        let name = "bert/encoder/layer_11/attention/self/query/kernel";
        assert_eq!(shorten(name, 100.0), name);
        let short = shorten(name, 14.0);
        assert!(short.starts_with("bert/enc") && short.ends_with("/kernel"), "{short}");
        assert!(width(&short) <= 14.0);
        assert_eq!(shorten("anything", 0.0), "…");
    }
}
