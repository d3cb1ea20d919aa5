//! Texts of others on a terminal: everything that would move the cursor, reorder what is read or hide is shown as what
//! it is.

/// Whether a character is shown by its number. New line and tab are the caller's affair.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

fn show(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) && !keep(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// A text of several lines; only new line and tab stay as they are.
pub fn text(text: &str) -> String {
    show(text, |c| c == '\n' || c == '\t')
}

/// A text that stands in one line, whatever it holds.
pub fn line(text: &str) -> String {
    show(text, |_| false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_texts_cannot_drive_a_terminal() {
        let cases = [
            ("plain ä 漢字 🥋", "plain ä 漢字 🥋"),
            ("two\nlines\tand a tab", "two\nlines\tand a tab"),
            ("over\rwritten", "over\\u{d}written"),
            ("\u{1b}[2J\u{1b}]0;title\u{7}", "\\u{1b}[2J\\u{1b}]0;title\\u{7}"),
            ("\u{9b}31mred", "\\u{9b}31mred"),
            ("\u{85}next\u{7f}", "\\u{85}next\\u{7f}"),
            ("nul\0", "nul\\u{0}"),
            ("abc\u{202e}cba\u{202c}", "abc\\u{202e}cba\\u{202c}"),
            ("\u{2066}a\u{2069}\u{200e}\u{200f}\u{61c}", "\\u{2066}a\\u{2069}\\u{200e}\\u{200f}\\u{61c}"),
            ("line\u{2028}para\u{2029}", "line\\u{2028}para\\u{2029}"),
            ("zero\u{200b}\u{200c}\u{200d}\u{2060}\u{feff}", "zero\\u{200b}\\u{200c}\\u{200d}\\u{2060}\\u{feff}"),
            ("tag\u{e0041}", "tag\\u{e0041}"),
        ];
        for (hostile, shown) in cases {
            assert_eq!(text(hostile), shown);
        }
    }

    #[test]
    fn a_line_stays_one_line() {
        assert_eq!(line("a\nb\tc\r\u{2028}"), "a\\u{a}b\\u{9}c\\u{d}\\u{2028}");
    }
}
