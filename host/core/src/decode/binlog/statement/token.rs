//! A statement cut into words, names, literals and symbols, with comments left out.
//!
//! The content of an executable comment (`/*!50100 ... */`, `/*M!100100 ... */`) counts as part of the statement,
//! whichever versions it is meant for: it can then only make a statement look like more than it is.

use std::borrow::Cow;

use super::super::query::Modes;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A keyword, a name without quotes, or a number.
    Word(&'a str),
    /// A name in quotes, without them.
    Name(Cow<'a, str>),
    /// The content of a string, with its escapes undone.
    Text(Cow<'a, str>),
    Symbol(char),
}

impl Token<'_> {
    pub(super) fn is(&self, keyword: &str) -> bool {
        matches!(self, Self::Word(word) if word.eq_ignore_ascii_case(keyword))
    }
}

#[derive(Debug, Clone)]
pub(super) struct Tokens<'a> {
    left: &'a str,
    modes: Modes,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(statement: &'a str, modes: Modes) -> Self {
        Self { left: statement, modes }
    }

    /// Passes over white space and comments.
    fn skip(&mut self) {
        loop {
            let left = self.left.trim_start();
            self.left = match left.as_bytes() {
                [b'#', ..] => after_line(left),
                [b'-', b'-'] => "",
                [b'-', b'-', next, ..] if next.is_ascii_whitespace() || next.is_ascii_control() => {
                    after_line(left)
                }
                [b'/', b'*', b'!', ..] => after(left, 3).trim_start_matches(is_digit),
                [b'/', b'*', b'M', b'!', ..] => after(left, 4).trim_start_matches(is_digit),
                [b'/', b'*', ..] => match left.split_once("*/") {
                    Some((_, behind)) => behind,
                    None => "",
                },
                // The end of an executable comment; nowhere else do these two stand together outside of strings.
                [b'*', b'/', ..] => after(left, 2),
                _ => {
                    self.left = left;
                    return;
                }
            };
        }
    }

    /// `left` is behind the opening quote. A quote inside is doubled, or escaped where that is allowed; without an end
    /// everything is inside.
    fn quoted(&mut self, left: &'a str, quote: char, has_escapes: bool) -> Cow<'a, str> {
        let mut content = Cow::Borrowed("");
        let mut start = 0;
        let mut characters = left.char_indices().peekable();
        while let Some((at, character)) = characters.next() {
            let is_escape = has_escapes && character == '\\';
            if character != quote && !is_escape {
                continue;
            }
            let next = characters.next_if(|(_, next)| is_escape || *next == quote);
            append(&mut content, left.get(start..at));
            let Some((next_at, next)) = next else {
                self.left = after(left, at + character.len_utf8());
                return content;
            };
            start = next_at + next.len_utf8();
            content.to_mut().push(if is_escape { unescaped(next) } else { next });
        }
        append(&mut content, left.get(start..));
        self.left = "";
        content
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        self.skip();
        let left = self.left;
        let first = left.chars().next()?;
        let behind = after(left, first.len_utf8());
        let has_escapes = !self.modes.no_backslash_escapes;
        Some(match first {
            '`' => Token::Name(self.quoted(behind, first, false)),
            '"' if self.modes.ansi_quotes => Token::Name(self.quoted(behind, first, false)),
            '"' | '\'' => Token::Text(self.quoted(behind, first, has_escapes)),
            _ if is_word(first) => {
                let end = left.find(|character| !is_word(character)).unwrap_or(left.len());
                self.left = after(left, end);
                Token::Word(left.get(..end).unwrap_or_default())
            }
            _ => {
                self.left = behind;
                Token::Symbol(first)
            }
        })
    }
}

fn append<'a>(content: &mut Cow<'a, str>, part: Option<&'a str>) {
    let part = part.unwrap_or_default();
    if content.is_empty() {
        *content = Cow::Borrowed(part);
    } else {
        content.to_mut().push_str(part);
    }
}

fn unescaped(character: char) -> char {
    match character {
        '0' => '\0',
        'b' => '\u{8}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'Z' => '\u{1A}',
        other => other,
    }
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '$') || !character.is_ascii()
}

fn is_digit(character: char) -> bool {
    character.is_ascii_digit()
}

fn after_line(text: &str) -> &str {
    text.split_once('\n').map_or("", |(_, behind)| behind)
}

/// `length` lies between two characters.
fn after(text: &str, length: usize) -> &str {
    text.get(length..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(statement: &str) -> Vec<String> {
        Tokens::new(statement, Modes::default())
            .map(|token| match token {
                Token::Word(word) => word.to_owned(),
                Token::Name(name) => format!("`{name}`"),
                Token::Text(text) => format!("'{text}'"),
                Token::Symbol(symbol) => symbol.to_string(),
            })
            .collect()
    }

    #[test]
    fn comments_are_left_out_and_executable_ones_are_not() {
        let statement = "/* a */ DROP -- b\n TABLE # c\n/*!40000 IF EXISTS */ /*M!100100 t */-- ";
        assert_eq!(tokens(statement), ["DROP", "TABLE", "IF", "EXISTS", "t"]);
        assert_eq!(tokens("a--b"), ["a", "-", "-", "b"]);
        assert_eq!(tokens("a /* no end"), ["a"]);
    }

    #[test]
    fn quotes_are_undone() {
        assert_eq!(
            tokens("`a``b`.'it''s' 'x\\'y\\n' \"d\"\"\""),
            ["`a`b`", ".", "'it's'", "'x'y\n'", "'d\"'"]
        );
        assert_eq!(tokens("'no end\\"), ["'no end'"]);
        assert_eq!(tokens("`no end"), ["`no end`"]);
    }

    #[test]
    fn modes_change_what_quotes_mean() {
        let modes = Modes { ansi_quotes: true, no_backslash_escapes: true };
        let mut tokens = Tokens::new("\"a\" 'b\\' c", modes);
        assert_eq!(tokens.next(), Some(Token::Name("a".into())));
        assert_eq!(tokens.next(), Some(Token::Text("b\\".into())));
        assert_eq!(tokens.next(), Some(Token::Word("c")));
    }
}
