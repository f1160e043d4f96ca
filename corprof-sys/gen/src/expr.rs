//! Expressions: values of enumerators, conditions of the preprocessor, bodies of macros.
//!
//! The operators of C that the inputs use, with C's precedence. Values are computed in 128 bits, so that an overflow of
//! 32 bits is detected where the value is used, instead of wrapped here.

use winnow::combinator::{alt, cut_err, delimited, fail, opt, preceded, separated, terminated};
use winnow::prelude::*;
use winnow::token::any;

use crate::error::Diagnostic;
use crate::lexer::{Kind, Token, tokens};
use crate::sources::SourceFile;
use crate::tokens::{Failure, Input, expected, kind, look, run, text};

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// A number.
    Int(i128),
    /// A name, and its place.
    Name(String, usize),
    /// `defined(name)`.
    Defined(String),
    /// A call of a macro: its name, its arguments, its place.
    Call(String, Vec<Expr>, usize),
    /// A prefix operator.
    Unary(char, Box<Expr>),
    /// An operator between two.
    Binary(String, Box<Expr>, Box<Expr>),
}

/// The value of a name, which stands at a place.
pub type NameValue<'f, E> = dyn Fn(&str, usize) -> Result<i128, E> + 'f;
/// The value of a macro's call with arguments, which stands at a place.
pub type CallValue<'f, E> = dyn Fn(&str, &[i128], usize) -> Result<i128, E> + 'f;

impl Expr {
    /// The value, with names and calls given by `name` and `call`.
    pub fn value<E>(&self, name: &NameValue<'_, E>, call: &CallValue<'_, E>) -> Result<i128, E> {
        Ok(match self {
            Self::Int(value) => *value,
            Self::Name(text, offset) => name(text, *offset)?,
            Self::Defined(text) => name(text, 0)?,
            Self::Call(text, arguments, offset) => {
                let arguments: Vec<i128> =
                    arguments.iter().map(|argument| argument.value(name, call)).collect::<Result<_, E>>()?;
                call(text, &arguments, *offset)?
            }
            Self::Unary(operator, operand) => unary(*operator, operand.value(name, call)?),
            Self::Binary(operator, left, right) => binary(operator, left.value(name, call)?, right.value(name, call)?),
        })
    }

    /// The value as the preprocessor has it: `name` for names, `defined` for `defined(...)`; a macro call is 0.
    pub fn condition(&self, name: &dyn Fn(&str) -> i128, defined: &dyn Fn(&str) -> i128) -> i128 {
        match self {
            Self::Int(value) => *value,
            Self::Name(text, _) => name(text),
            Self::Defined(text) => defined(text),
            Self::Call(..) => 0,
            Self::Unary(operator, operand) => unary(*operator, operand.condition(name, defined)),
            Self::Binary(operator, left, right) => {
                binary(operator, left.condition(name, defined), right.condition(name, defined))
            }
        }
    }
}

fn unary(operator: char, value: i128) -> i128 {
    match operator {
        '~' => !value,
        '-' => value.saturating_neg(),
        '!' => i128::from(value == 0),
        _ => value,
    }
}

fn binary(operator: &str, left: i128, right: i128) -> i128 {
    let shift = u32::try_from(right).unwrap_or(0).min(63);
    match operator {
        "||" => i128::from(left != 0 || right != 0),
        "&&" => i128::from(left != 0 && right != 0),
        "|" => left | right,
        "^" => left ^ right,
        "&" => left & right,
        "==" => i128::from(left == right),
        "!=" => i128::from(left != right),
        "<" => i128::from(left < right),
        ">" => i128::from(left > right),
        "<<" => left << shift,
        ">>" => left >> shift,
        "+" => left.saturating_add(right),
        "-" => left.saturating_sub(right),
        "*" => left.saturating_mul(right),
        _ => left.checked_div(right).unwrap_or(0),
    }
}

/// A number as C writes it.
pub fn integer(text: &str) -> Option<i128> {
    let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
    match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hexadecimal) => i128::from_str_radix(hexadecimal, 16).ok(),
        None if digits.len() > 1 && digits.starts_with('0') => i128::from_str_radix(digits, 8).ok(),
        None => digits.parse().ok(),
    }
}

/// Parses `text`, which stands at `offset` of `file`.
pub fn parse(file: &SourceFile, text: &str, offset: usize) -> Result<Expr, Diagnostic> {
    let tokens = tokens(file, text, offset)?;
    run(file, &tokens, offset + text.trim_end().len(), expression)
}

/// The operators, from the loosest to the tightest.
const LEVELS: [&[&str]; 10] =
    [&["||"], &["&&"], &["|"], &["^"], &["&"], &["==", "!="], &["<", ">"], &["<<", ">>"], &["+", "-"], &["*", "/"]];

/// An expression among other tokens.
pub(crate) fn expression(input: &mut Input<'_, '_>) -> Result<Expr, Failure> {
    level(0, input)
}

fn level(depth: usize, input: &mut Input<'_, '_>) -> Result<Expr, Failure> {
    let Some(operators) = LEVELS.get(depth) else { return prefix(input) };
    let mut next = |input: &mut Input<'_, '_>| level(depth + 1, input);
    let mut value = next(input)?;
    loop {
        let operator = opt(any.verify(|token: &&Token<'_>| operators.contains(&token.text))).parse_next(input)?;
        let Some(token) = operator else { return Ok(value) };
        // Nothing but an operand can follow: the complaint belongs here, not before the operator.
        let right = cut_err(&mut next).parse_next(input)?;
        value = Expr::Binary(token.text.to_owned(), Box::new(value), Box::new(right));
    }
}

fn prefix(input: &mut Input<'_, '_>) -> Result<Expr, Failure> {
    if let Some(operator) = opt(alt((text("~"), text("-"), text("!"), text("+")))).parse_next(input)? {
        let operand = cut_err(prefix).parse_next(input)?;
        return Ok(Expr::Unary(operator.text.chars().next().unwrap_or('+'), Box::new(operand)));
    }
    if is_cast(input) {
        // A cast is ignored: the width is checked where the value is used.
        let _ = (any, any, any).parse_next(input)?;
        return cut_err(prefix).parse_next(input);
    }
    primary(input)
}

/// `(NAME)` before something that can be an operand.
fn is_cast(input: &Input<'_, '_>) -> bool {
    let kinds: Vec<Kind> = (0..4).filter_map(|ahead| look(input, ahead)).map(|token| token.kind).collect();
    matches!(
        kinds.as_slice(),
        [Kind::OpenParen, Kind::Ident, Kind::CloseParen, Kind::Int | Kind::Ident | Kind::OpenParen]
    )
}

fn primary(input: &mut Input<'_, '_>) -> Result<Expr, Failure> {
    match look(input, 0).map(|token| token.kind) {
        Some(Kind::Int) => kind(Kind::Int, "a number")
            .verify_map(|token| integer(token.text))
            .map(Expr::Int)
            .context(expected("a number"))
            .parse_next(input),
        Some(Kind::OpenParen) => delimited(text("("), cut_err(expression), cut_err(text(")"))).parse_next(input),
        Some(Kind::Ident) => name(input),
        _ => fail.context(expected("a value")).parse_next(input),
    }
}

fn name(input: &mut Input<'_, '_>) -> Result<Expr, Failure> {
    let name = kind(Kind::Ident, "a name").parse_next(input)?;
    if name.text == "defined" {
        let inside = kind(Kind::Ident, "a name");
        let plain = kind(Kind::Ident, "a name");
        let of = alt((delimited(text("("), inside, text(")")), plain));
        return cut_err(of).map(|of| Expr::Defined(of.text.to_owned())).parse_next(input);
    }
    let arguments = preceded(text("("), cut_err(terminated(separated(0.., expression, text(",")), text(")"))));
    Ok(match opt(arguments).parse_next(input)? {
        Some(arguments) => Expr::Call(name.text.to_owned(), arguments, name.offset),
        None => Expr::Name(name.text.to_owned(), name.offset),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::Input;

    fn value(text: &str) -> i128 {
        let file = SourceFile::new(Input::Corprof, text.to_owned());
        let expression = parse(&file, text, 0).unwrap_or_else(|error| panic!("{error}"));
        let name = |name: &str, _| if name == "seven" { Ok(7) } else { Err(name.to_owned()) };
        let sum = |_: &str, arguments: &[i128], _| Ok(arguments.iter().sum());
        expression.value(&name, &sum).expect("a value")
    }

    #[test]
    fn operators_bind_as_in_c() {
        assert_eq!(value("1 | 2 << 2 + 1"), 1 | 2 << 3);
        assert_eq!(value("1 + 2 * 3 - 4 / 2"), 5);
        assert_eq!(value("6 & 3 ^ 1 | 8"), 6 & 3 ^ 1 | 8);
        assert_eq!(value("10 - 3 - 2"), 5);
        assert_eq!(value("1 == 2 || !0 && 3 > 2"), 1);
        assert_eq!(value("~0 & 0xFFFFFFFFUL"), 0xFFFF_FFFF);
        assert_eq!(value("-(2)"), -2);
        assert_eq!(value("010"), 8);
    }

    #[test]
    fn names_calls_and_casts() {
        assert_eq!(value("seven | 8"), 15);
        assert_eq!(value("sum(1, (2), seven)"), 10);
        assert_eq!(value("none()"), 0);
        assert_eq!(value("(DWORD)0x10 | (int)(1)"), 0x11);
        assert_eq!(value("(seven)"), 7);
        assert_eq!(value("(seven) - 1"), 6);
    }

    #[test]
    fn half_an_expression_is_told_where_it_stops() {
        let text = "1 | ";
        let file = SourceFile::new(Input::Corprof, text.to_owned());
        let complaint = parse(&file, text, 0).expect_err("half");
        assert_eq!(complaint.column, 4, "{complaint}");
    }
}
