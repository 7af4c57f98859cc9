//! A YAML document as a tree in which every node knows its place.
//!
//! The tree is made from a parser's events instead of by serde, because a deserializer stops at its first problem and
//! decides what a scalar is before anyone asks: a password of `0123` would be a number. Here a scalar stays the text
//! that was written until the reader of that key says what it wants.
//!
//! Depth is bounded by the parser (255 levels of either style), size by the limit on the file; anchors and aliases, by
//! which a small file could become a large tree, are refused.

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span};

use super::problem::{Place, Problem};

#[derive(Debug)]
pub(in crate::config) struct Node {
    /// Of a list or a map under a key: the place of the key.
    pub(in crate::config) place: Place,
    pub(in crate::config) content: Content,
}

#[derive(Debug)]
pub(in crate::config) enum Content {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<Entry>),
    /// Already reported; readers pass it over.
    Refused,
}

#[derive(Debug)]
pub(in crate::config) struct Scalar {
    /// Escapes resolved, variables not.
    pub(in crate::config) written: String,
    /// Without quotes, so that it may be something else than text.
    pub(in crate::config) plain: bool,
}

impl Scalar {
    pub(in crate::config) fn is_null(&self) -> bool {
        self.plain && matches!(self.written.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }
}

#[derive(Debug)]
pub(in crate::config) struct Entry {
    pub(in crate::config) key: String,
    pub(in crate::config) place: Place,
    pub(in crate::config) value: Node,
}

/// The file's one document; `None` where it is empty or has been reported as unreadable.
pub(in crate::config) fn parse(text: &str, problems: &mut Vec<Problem>) -> Option<Node> {
    let options = granit_parser::options! { emit_unresolved_aliases: true };
    let mut builder =
        Builder { parser: Parser::new_from_str_with_options(text, options), problems };
    match builder.document() {
        Ok(node) => node,
        Err(error) => {
            let place = place(&Span::empty(*error.marker()));
            let text = format!("the file is not valid YAML: {}", error.info());
            builder.problems.push(Problem { place, path: String::new(), text });
            None
        }
    }
}

fn place(span: &Span) -> Place {
    Place { line: span.start.line(), column: span.start.col().saturating_add(1) }
}

/// Appends a key to a path.
pub(in crate::config) fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

struct Builder<'t, 'p> {
    parser: Parser<'t, granit_parser::StrInput<'t>>,
    problems: &'p mut Vec<Problem>,
}

impl<'t> Builder<'t, '_> {
    fn report(&mut self, place: Place, path: &str, text: &str) {
        self.problems.push(Problem { place, path: path.to_owned(), text: text.to_owned() });
    }

    /// The next event that is not a comment; the end of the stream stays the end.
    fn next(&mut self) -> Result<(Event<'t>, Span), ScanError> {
        loop {
            match self.parser.next() {
                Some(Ok((Event::Comment(..), _))) => {}
                Some(next) => return next,
                None => return Ok((Event::StreamEnd, Span::default())),
            }
        }
    }

    fn document(&mut self) -> Result<Option<Node>, ScanError> {
        let mut first = None;
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(first),
                (Event::DocumentStart(..), span) if first.is_some() => {
                    self.report(
                        place(&span),
                        "",
                        "a second document, expected one pipeline a file",
                    );
                    return Ok(first);
                }
                (Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd, _) => {}
                (event, span) => first = Some(self.node(event, span, "")?),
            }
        }
    }

    fn node(&mut self, event: Event<'t>, span: Span, path: &str) -> Result<Node, ScanError> {
        let place = place(&span);
        let mut refused = false;
        if let Event::Scalar(.., Some(_))
        | Event::SequenceStart(.., Some(_))
        | Event::MappingStart(.., Some(_)) = event
        {
            self.report(place, path, "tags (`!name`) are not understood; leave it out");
            refused = true;
        }
        let content = match event {
            Event::Scalar(text, style, ..) => Content::Scalar(Scalar {
                written: text.into_owned(),
                plain: style == ScalarStyle::Plain,
            }),
            Event::SequenceStart(..) => self.list(path)?,
            Event::MappingStart(..) => self.map(path)?,
            _ => {
                let text = "aliases (`*name`) are not understood; write the value out, \
                            or quote it if it starts with `*`";
                self.report(place, path, text);
                Content::Refused
            }
        };
        Ok(Node { place, content: if refused { Content::Refused } else { content } })
    }

    fn list(&mut self, path: &str) -> Result<Content, ScanError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd | Event::StreamEnd, _) => return Ok(Content::List(items)),
                (event, span) => {
                    let path = format!("{path}[{}]", items.len());
                    items.push(self.node(event, span, &path)?);
                }
            }
        }
    }

    fn map(&mut self, path: &str) -> Result<Content, ScanError> {
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd | Event::StreamEnd) {
                return Ok(Content::Map(entries));
            }
            let key = self.node(event, span, path)?;
            let (event, span) = self.next()?;
            let Content::Scalar(Scalar { written, .. }) = key.content else {
                self.report(key.place, path, "a key that is not plain text");
                self.node(event, span, path)?;
                continue;
            };
            let path = below(path, &written);
            let mut value = self.node(event, span, &path)?;
            if !matches!(value.content, Content::Scalar(_)) {
                value.place = key.place;
            }
            if written.contains("${") {
                self.report(key.place, &path, "variables are filled into values, never into keys");
                continue;
            }
            if let Some(first) = entries.iter().find(|entry| entry.key == written) {
                let text = format!("the key stands twice, first in line {}", first.place.line);
                self.report(key.place, &path, &text);
                continue;
            }
            entries.push(Entry { key: written, place: key.place, value });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        parse(text, &mut problems);
        let line = |Problem { place, path, text }: Problem| {
            format!("{}:{}: {path}: {text}", place.line, place.column)
        };
        problems.into_iter().map(line).collect()
    }

    #[test]
    fn scalars_stay_as_they_were_written() {
        let mut problems = Vec::new();
        let node = parse("a: 0123\nb: \"yes\"\nc:\n", &mut problems).expect("a document");
        let Content::Map(entries) = node.content else { panic!("a map") };
        let scalars: Vec<_> = entries
            .iter()
            .map(|entry| match &entry.value.content {
                Content::Scalar(scalar) => {
                    (scalar.written.as_str(), scalar.plain, scalar.is_null())
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(scalars, [("0123", true, false), ("yes", false, false), ("~", true, true)]);
        assert_eq!(problems, []);
    }

    #[test]
    fn what_would_change_the_meaning_of_a_tree_is_refused() {
        assert_eq!(
            problems("a: &x 1\nb: *x\nc: !t 2\na: 3\n${K}: 4\n? [d]\n: 5\n"),
            [
                "2:4: b: aliases (`*name`) are not understood; write the value out, or quote it if it starts with `*`",
                "3:7: c: tags (`!name`) are not understood; leave it out",
                "4:1: a: the key stands twice, first in line 1",
                "5:1: ${K}: variables are filled into values, never into keys",
                "6:3: : a key that is not plain text",
            ]
        );
        assert_eq!(
            problems("a: 1\n---\nb: 2\n"),
            ["2:1: : a second document, expected one pipeline a file"]
        );
        assert_eq!(problems(""), [""; 0]);
    }

    #[test]
    fn a_syntax_error_has_a_place() {
        let texts = problems("a: [1, 2\nb: 3\n");
        assert!(texts[0].starts_with("2:"), "{texts:?}");
        assert!(texts[0].contains("not valid YAML"), "{texts:?}");
    }
}
