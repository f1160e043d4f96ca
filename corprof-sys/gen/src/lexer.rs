//! Tokens of the IDL, with their places.
//!
//! The lexer runs over text from which [`crate::preprocess`] has blanked comments, directives and inactive regions
//! without moving anything, so that a token's place is its place in the input.

use logos::Logos;

use crate::error::Diagnostic;
use crate::sources::SourceFile;

/// The kinds of tokens.
#[derive(Logos, Clone, Copy, Debug, PartialEq, Eq)]
#[logos(skip r"[ \t\r\n\f]+")]
pub enum Kind {
    /// A word.
    #[regex(r"[A-Za-z_][A-Za-z0-9_]*")]
    Ident,
    /// A whole number, with its suffix.
    #[regex(r"0[xX][0-9a-fA-F]+[uUlL]*")]
    #[regex(r"[0-9]+[uUlL]*", priority = 3)]
    Int,
    /// `1.0`, as attributes have it.
    #[regex(r"[0-9]+\.[0-9]+")]
    Version,
    /// The inside of `uuid(...)`.
    #[regex(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", priority = 10)]
    Guid,
    /// A quoted text on one line.
    #[regex(r#""([^"\\\n]|\\.)*""#)]
    Text,
    #[token("{")]
    #[doc(hidden)]
    OpenBrace,
    #[token("}")]
    #[doc(hidden)]
    CloseBrace,
    #[token("[")]
    #[doc(hidden)]
    OpenBracket,
    #[token("]")]
    #[doc(hidden)]
    CloseBracket,
    #[token("(")]
    #[doc(hidden)]
    OpenParen,
    #[token(")")]
    #[doc(hidden)]
    CloseParen,
    #[token(",")]
    #[doc(hidden)]
    Comma,
    #[token(";")]
    #[doc(hidden)]
    Semicolon,
    #[token(":")]
    #[doc(hidden)]
    Colon,
    #[token("*")]
    #[doc(hidden)]
    Star,
    #[token("=")]
    #[doc(hidden)]
    Equals,
    /// An operator of an expression.
    #[token("||")]
    #[token("&&")]
    #[token("==")]
    #[token("!=")]
    #[token("<<")]
    #[token(">>")]
    #[token("<")]
    #[token(">")]
    #[token("|")]
    #[token("&")]
    #[token("^")]
    #[token("~")]
    #[token("!")]
    #[token("+")]
    #[token("-")]
    #[token("/")]
    Operator,
}

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'i> {
    /// Its kind.
    pub kind: Kind,
    /// How it is written.
    pub text: &'i str,
    /// Its place in the input, in bytes.
    pub offset: usize,
}

impl PartialEq<Kind> for Token<'_> {
    fn eq(&self, kind: &Kind) -> bool {
        self.kind == *kind
    }
}

/// Cuts `text` into tokens; `base` is the place of `text` in `file`.
pub fn tokens<'i>(file: &SourceFile, text: &'i str, base: usize) -> Result<Vec<Token<'i>>, Diagnostic> {
    Kind::lexer(text)
        .spanned()
        .map(|(kind, span)| {
            let offset = base + span.start;
            let found = &text[span];
            let kind = kind.map_err(|()| file.diagnostic(offset, format!("`{found}` starts no word of the IDL")))?;
            Ok(Token { kind, text: found, offset })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::Input;

    fn lex(text: &str) -> Result<Vec<(Kind, String)>, Diagnostic> {
        let file = SourceFile::new(Input::Corprof, text.to_owned());
        let tokens = tokens(&file, text, 0)?;
        Ok(tokens.iter().map(|token| (token.kind, token.text.to_owned())).collect())
    }

    fn kinds(text: &str) -> Vec<Kind> {
        lex(text).expect("tokens").into_iter().map(|(kind, _)| kind).collect()
    }

    #[test]
    fn a_guid_is_one_token_whatever_it_starts_with() {
        for guid in ["176FBED1-A55C-4796-98CA-A9DA0EF883E7", "b0266d75-2081-4493-af7f-028ba34db891"] {
            assert_eq!(lex(guid), Ok(vec![(Kind::Guid, guid.to_owned())]));
        }
        assert_ne!(kinds("176FBED-A55C-4796-98CA-A9DA0EF883E7"), [Kind::Guid]);
    }

    #[test]
    fn numbers_take_their_suffix() {
        for number in ["0", "0x8007000BL", "0X10", "12u", "1UL"] {
            assert_eq!(lex(number), Ok(vec![(Kind::Int, number.to_owned())]));
        }
        assert_eq!(kinds("1.0"), [Kind::Version]);
        assert_eq!(kinds("-1"), [Kind::Operator, Kind::Int]);
    }

    #[test]
    fn texts_end_on_their_line() {
        assert_eq!(kinds(r#""a \" b" x"#), [Kind::Text, Kind::Ident]);
        let complaint = lex("x\n\"a\n\"").expect_err("an open text");
        assert_eq!((complaint.line, complaint.column), (2, 1));
    }

    #[test]
    fn places_are_those_of_the_file() {
        let file = SourceFile::new(Input::Corprof, "  a b".to_owned());
        let offsets: Vec<usize> = tokens(&file, "a b", 2).expect("tokens").iter().map(|token| token.offset).collect();
        assert_eq!(offsets, [2, 4]);
    }
}
