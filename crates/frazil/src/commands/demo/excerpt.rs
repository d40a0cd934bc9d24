//! What of a command's output is shown, and a line of a shell as words.

/// Which lines matter.
#[derive(Clone, Copy, Debug)]
pub enum Keep {
    /// All.
    All,
    /// So many.
    First(usize),
    /// Those that contain one of these.
    With(&'static [&'static str]),
}

/// The lines that matter; `…` stands for those between and after them.
pub fn excerpt(output: &str, keep: Keep) -> String {
    let kept = |at: usize, line: &str| match keep {
        Keep::All => true,
        Keep::First(count) => at < count,
        Keep::With(parts) => parts.iter().any(|part| line.contains(part)),
    };
    let mut lines: Vec<&str> = Vec::new();
    for (at, line) in output.trim_matches('\n').lines().enumerate() {
        if kept(at, line) {
            lines.push(line);
        } else if lines.last().is_some_and(|last| *last != "  …") {
            lines.push("  …");
        }
    }
    lines.join("\n")
}

/// The words of a line; quotes of either kind hold one together.
pub fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for letter in line.chars() {
        match (letter, quote) {
            (_, Some(open)) if letter == open => quote = None,
            ('\'' | '"', None) => quote = Some(letter),
            (' ', None) => words.push(String::new()),
            (_, _) => words.last_mut().expect("there is one from the start").push(letter),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_seen() {
        let output = "\na 1\nb 2\nc 3\na 4\n";
        assert_eq!(excerpt(output, Keep::All), "a 1\nb 2\nc 3\na 4");
        assert_eq!(excerpt(output, Keep::First(2)), "a 1\nb 2\n  …");
        assert_eq!(excerpt(output, Keep::With(&["a"])), "a 1\n  …\na 4");
        assert_eq!(excerpt("", Keep::All), "");
    }

    #[test]
    fn quotes_hold_words_together() {
        assert_eq!(words("a 'b c' --d=\"e's\" f"), ["a", "b c", "--d=e's", "f"]);
    }
}
