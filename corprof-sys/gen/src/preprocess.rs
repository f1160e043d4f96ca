//! Comments, `cpp_quote` and the C preprocessor.
//!
//! Everything that is not a declaration is blanked in place: same length, same lines, so that places stay true.
//! `#define` lines are kept aside, for `corerror.h` is made of them. Conditions are decided as the C preprocessor
//! would with nothing defined from outside: an unknown name is 0. Nothing is included; a name that an include would
//! have brought must be declared in `supplement.idl`, or it is an unknown type.

use std::collections::BTreeSet;

use crate::error::Diagnostic;
use crate::expr;
use crate::sources::SourceFile;

/// A `#define`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Define {
    /// The name.
    pub name: String,
    /// It takes arguments.
    pub function: bool,
    /// Its replacement.
    pub body: String,
    /// Place of the body in the input.
    pub offset: usize,
}

/// The input as the lexer wants it.
#[derive(Clone, Debug)]
pub struct Preprocessed {
    /// The text, as long as the input.
    pub text: String,
    /// The active `#define` lines, in order.
    pub defines: Vec<Define>,
}

/// Words that take the rest of their line with them. The reduced corprof.idl has lost the ends of some `cpp_quote`
/// lines (they looked like comments), so their contents are not looked at.
const LINE_WORDS: [&str; 3] = ["cpp_quote", "midl_pragma", "MIDL_PRAGMA"];

/// Blanks the text that the lexer must not see.
pub fn preprocess(file: &SourceFile) -> Result<Preprocessed, Diagnostic> {
    let text = strip(file)?;
    let mut state = State { file, defined: BTreeSet::new(), defines: Vec::new(), conditions: Vec::new() };
    let mut out = String::with_capacity(text.len());
    let mut lines = text.split_inclusive('\n').peekable();
    let mut offset = 0;
    while let Some(line) = lines.next() {
        let start = offset;
        offset += line.len();
        if !line.trim_start().starts_with('#') {
            if state.active() {
                out.push_str(line);
            } else {
                blank(&mut out, line);
            }
            continue;
        }
        let mut directive = line.to_owned();
        blank(&mut out, line);
        while directive.trim_end().ends_with('\\') {
            let Some(next) = lines.next() else { break };
            directive = format!("{} {next}", directive.trim_end().trim_end_matches('\\'));
            offset += next.len();
            blank(&mut out, next);
        }
        state.directive(&directive, start)?;
    }
    if let Some(condition) = state.conditions.last() {
        return Err(file.diagnostic(condition.offset, "this condition has no #endif"));
    }
    Ok(Preprocessed { text: out, defines: state.defines })
}

fn blank(out: &mut String, text: &str) {
    // One space a byte: places are counted in bytes.
    out.extend(text.bytes().map(|byte| if byte == b'\n' || byte == b'\r' { char::from(byte) } else { ' ' }));
}

/// Blanks comments and the lines of [`LINE_WORDS`].
fn strip(file: &SourceFile) -> Result<String, Diagnostic> {
    let text = file.text.as_str();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let line_end = rest.find('\n').unwrap_or(rest.len());
        let line_start = out.rfind('\n').map_or(0, |newline| newline + 1);
        let first = out[line_start..].trim().is_empty();
        let line_word = || LINE_WORDS.iter().any(|word| starts_with_word(rest, word));
        let length = if rest.starts_with("/*") {
            let end = rest.find("*/").ok_or_else(|| file.diagnostic(at, "this comment is never closed"))?;
            blank(&mut out, &rest[..end + 2]);
            end + 2
        } else if rest.starts_with("//") || (first && line_word()) {
            blank(&mut out, &rest[..line_end]);
            line_end
        } else if rest.starts_with('"') {
            let end = text_end(&rest[..line_end]).ok_or_else(|| file.diagnostic(at, "this text is never closed"))?;
            out.push_str(&rest[..end]);
            end
        } else {
            let length = rest.chars().next().map_or(1, char::len_utf8);
            out.push_str(&rest[..length]);
            length
        };
        at += length;
    }
    Ok(out)
}

fn starts_with_word(text: &str, word: &str) -> bool {
    text.strip_prefix(word).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
}

/// Length of the quoted text that `line` starts with.
fn text_end(line: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in line.char_indices().skip(1) {
        match c {
            '"' if !escaped => return Some(at + 1),
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    None
}

struct Condition {
    /// The lines before and around are active.
    outer: bool,
    /// The branch in force is.
    active: bool,
    /// Some branch was, so that `#else` is not.
    taken: bool,
    offset: usize,
}

struct State<'f> {
    file: &'f SourceFile,
    defined: BTreeSet<String>,
    defines: Vec<Define>,
    conditions: Vec<Condition>,
}

impl State<'_> {
    fn active(&self) -> bool {
        self.conditions.last().is_none_or(|condition| condition.active)
    }

    fn directive(&mut self, line: &str, start: usize) -> Result<(), Diagnostic> {
        let hash = line.find('#').unwrap_or_default();
        let body = line[hash + 1..].trim_start();
        let word_length = body.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(body.len());
        let (word, rest) = body.split_at(word_length);
        let offset = start + hash;
        let rest_offset = start + line.len() - rest.len();
        match word {
            "ifdef" => self.open(offset, |state| Ok(state.defined.contains(rest.trim()))),
            "ifndef" => self.open(offset, |state| Ok(!state.defined.contains(rest.trim()))),
            "if" => self.open(offset, |state| state.evaluate(rest, rest_offset)),
            "elif" => {
                let value = self.evaluate(rest, rest_offset)?;
                self.branch(offset, value)
            }
            "else" => self.branch(offset, true),
            "endif" => match self.conditions.pop() {
                Some(_) => Ok(()),
                None => Err(self.file.diagnostic(offset, "#endif without a condition")),
            },
            _ if !self.active() => Ok(()),
            "define" => self.define(rest, rest_offset),
            "undef" => {
                self.defined.remove(rest.trim());
                Ok(())
            }
            "include" | "pragma" | "" => Ok(()),
            _ => Err(self.file.diagnostic(offset, format!("the directive `#{word}` is not understood"))),
        }
    }

    fn open(&mut self, offset: usize, value: impl FnOnce(&Self) -> Result<bool, Diagnostic>) -> Result<(), Diagnostic> {
        let outer = self.active();
        let active = outer && value(self)?;
        self.conditions.push(Condition { outer, active, taken: active, offset });
        Ok(())
    }

    fn branch(&mut self, offset: usize, value: bool) -> Result<(), Diagnostic> {
        let Some(condition) = self.conditions.last_mut() else {
            return Err(self.file.diagnostic(offset, "#else or #elif without a condition"));
        };
        condition.active = condition.outer && !condition.taken && value;
        condition.taken |= condition.active;
        Ok(())
    }

    fn evaluate(&self, text: &str, offset: usize) -> Result<bool, Diagnostic> {
        let defined = |name: &str| i128::from(self.defined.contains(name));
        // A name that is defined but not as a number counts as 0, as an empty macro would.
        let value = expr::parse(self.file, text, offset)?.condition(&|name| self.number(name), &defined);
        Ok(value != 0)
    }

    fn number(&self, name: &str) -> i128 {
        let define = self.defines.iter().rev().find(|define| define.name == name);
        define.and_then(|define| expr::integer(define.body.trim())).unwrap_or(0)
    }

    fn define(&mut self, rest: &str, offset: usize) -> Result<(), Diagnostic> {
        let text = rest.trim_start();
        let name_length = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
        if name_length == 0 {
            return Err(self.file.diagnostic(offset, "#define without a name"));
        }
        let (name, mut body) = text.split_at(name_length);
        let function = body.starts_with('(');
        if function {
            let Some(end) = body.find(')') else {
                return Err(self.file.diagnostic(offset, "the arguments of this macro are never closed"));
            };
            body = &body[end + 1..];
        }
        let offset = offset + rest.len() - body.trim_start().len();
        self.defined.insert(name.to_owned());
        self.defines.push(Define { name: name.to_owned(), function, body: body.trim().to_owned(), offset });
        Ok(())
    }
}
