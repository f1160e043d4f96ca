//! The small parsers that the grammar is made of, over tokens instead of characters.

use winnow::combinator::trace;
use winnow::error::{ContextError, ErrMode, StrContext, StrContextValue};
use winnow::prelude::*;
use winnow::stream::TokenSlice;
use winnow::token::any;

use crate::error::Diagnostic;
use crate::lexer::{Kind, Token};
use crate::sources::SourceFile;

/// The input of the parsers.
pub(crate) type Input<'t, 'i> = TokenSlice<'t, Token<'i>>;
/// How they fail.
pub(crate) type Failure = ErrMode<ContextError>;

/// The expected token, for the message.
pub(crate) fn expected(what: &'static str) -> StrContext {
    StrContext::Expected(StrContextValue::Description(what))
}

/// One token of `kind`.
pub(crate) fn kind<'t, 'i: 't>(kind: Kind, what: &'static str) -> impl Parser<Input<'t, 'i>, Token<'i>, Failure> {
    trace(what, any.verify(move |token: &&Token<'i>| token.kind == kind))
        .map(|token: &Token<'i>| *token)
        .context(expected(what))
}

/// A token that is written just so.
pub(crate) fn text<'t, 'i: 't>(text: &'static str) -> impl Parser<Input<'t, 'i>, Token<'i>, Failure> {
    any.verify(move |token: &&Token<'i>| token.text == text)
        .map(|token: &Token<'i>| *token)
        .context(StrContext::Expected(StrContextValue::StringLiteral(text)))
}

/// The next token, if it is a word that `test` accepts.
pub(crate) fn word<'t, 'i: 't>(
    what: &'static str,
    test: impl Fn(&str) -> bool,
) -> impl Parser<Input<'t, 'i>, Token<'i>, Failure> {
    any.verify(move |token: &&Token<'i>| token.kind == Kind::Ident && test(token.text))
        .map(|token: &Token<'i>| *token)
        .context(expected(what))
}

/// Looks at the token `ahead` without taking it.
pub(crate) fn look<'i>(input: &Input<'_, 'i>, ahead: usize) -> Option<Token<'i>> {
    input.get(ahead).copied()
}

/// Runs `parser` over all of `tokens`, and turns its failure into a complaint.
pub(crate) fn run<'t, 'i: 't, O>(
    file: &SourceFile,
    tokens: &'t [Token<'i>],
    end: usize,
    mut parser: impl Parser<Input<'t, 'i>, O, Failure>,
) -> Result<O, Diagnostic> {
    parser.parse(TokenSlice::new(tokens)).map_err(|error| {
        let token = tokens.get(error.offset());
        let found = token.map_or_else(|| "the end".to_owned(), |token| format!("`{}`", token.text));
        let wanted: Vec<String> = error
            .inner()
            .context()
            .filter_map(|context| match context {
                StrContext::Expected(value) => Some(value.to_string()),
                _ => None,
            })
            .collect();
        let message = match wanted.first() {
            Some(wanted) => format!("expected {wanted}, found {found}"),
            None => format!("{found} is not understood here"),
        };
        file.diagnostic(token.map_or(end, |token| token.offset), message)
    })
}
