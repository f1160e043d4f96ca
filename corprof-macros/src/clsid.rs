//! Parses CLSIDs: `BDD57A0C-D4F7-486D-A8CA-86070DC12FA0`, in braces or not, in either case.
//!
//! This checks only the text; `profiler.rs` knows its place in the user's source.

use std::fmt;

/// Lengths of the five groups of digits.
const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];

/// How to get a CLSID; the end of every message about one. No ready-made CLSID is offered, because users would copy it.
pub(crate) const HOW_TO_MAKE: &str = "`uuidgen` makes a new one (in PowerShell: `New-Guid`)";

/// A well-formed CLSID that is not nil.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Clsid(u128);

impl Clsid {
    /// Parses a CLSID; an error says what is wrong with `text` and what to write instead.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match digits(text) {
            Ok(0) => Err(format!("a profiler cannot have the nil CLSID: {HOW_TO_MAKE}")),
            Ok(value) => Ok(Self(value)),
            Err(flaw) => Err(format!(
                "`{text}` is not a CLSID: {flaw}\n\
                 write \"XXXXXXXX-XXXX-XXXX-XXXX-XXXXXXXXXXXX\", each X a hexadecimal digit, in braces or not: {HOW_TO_MAKE}"
            )),
        }
    }

    /// The text of a Rust literal for `Guid::from_u128`, with its digits grouped like the CLSID's.
    pub(crate) fn literal(self) -> String {
        format!("0x{}", self.grouped("_"))
    }

    fn grouped(self, separator: &str) -> String {
        let all = format!("{:032X}", self.0);
        let mut rest = all.as_str();
        let groups = GROUPS.map(|length| {
            let (group, after) = rest.split_at(length);
            rest = after;
            group
        });
        groups.join(separator)
    }
}

/// The form that the runtime's environment variables and the registry use.
impl fmt::Display for Clsid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}", self.grouped("-"))
    }
}

/// The value of the 32 digits, or the first error.
fn digits(text: &str) -> Result<u128, String> {
    let bare = match (text.strip_prefix('{'), text.strip_suffix('}')) {
        (Some(_), Some(_)) => &text[1..text.len() - 1],
        (None, None) => text,
        _ => return Err("one of the two braces is missing".into()),
    };
    let groups: Vec<&str> = bare.split('-').collect();
    if let Some(stranger) = bare.chars().find(|c| *c != '-' && !c.is_ascii_hexdigit()) {
        return Err(format!("{stranger:?} is not a hexadecimal digit"));
    }
    if groups.len() != GROUPS.len() {
        return Err(format!("it needs 5 groups of digits and has {}", groups.len()));
    }
    for (index, (group, length)) in groups.iter().zip(GROUPS).enumerate() {
        if group.len() != length {
            let nth = index + 1;
            return Err(format!("group {nth} needs {length} digits and has {}", group.len()));
        }
    }
    u128::from_str_radix(&groups.concat(), 16).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: u128 = 0xBDD57A0C_D4F7_486D_A8CA_86070DC12FA0;

    #[test]
    fn reads_with_and_without_braces_in_either_case() {
        for text in [
            "BDD57A0C-D4F7-486D-A8CA-86070DC12FA0",
            "{BDD57A0C-D4F7-486D-A8CA-86070DC12FA0}",
            "{bdd57a0c-d4f7-486d-a8ca-86070dc12fa0}",
            "bdd57a0c-D4F7-486d-A8CA-86070dc12fa0",
        ] {
            assert_eq!(Clsid::parse(text), Ok(Clsid(VALUE)), "{text}");
        }
    }

    #[test]
    fn writes_the_braced_upper_case_form_with_leading_zeroes() {
        assert_eq!(Clsid(VALUE).to_string(), "{BDD57A0C-D4F7-486D-A8CA-86070DC12FA0}");
        assert_eq!(Clsid(1).to_string(), "{00000000-0000-0000-0000-000000000001}");
        assert_eq!(Clsid(VALUE).literal(), "0xBDD57A0C_D4F7_486D_A8CA_86070DC12FA0");
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, flaw) in [
            ("", "needs 5 groups of digits and has 1"),
            ("{", "one of the two braces is missing"),
            ("{}", "needs 5 groups of digits and has 1"),
            ("BDD57A0CD4F7486DA8CA86070DC12FA0", "needs 5 groups of digits and has 1"),
            ("BDD57A0C-D4F7-486D-A8CA-86070DC12FA0}", "one of the two braces is missing"),
            ("BDD57A0C-D4F7-486D-A8CA-86070DC12FA", "group 5 needs 12 digits and has 11"),
            ("BDD57A0G-D4F7-486D-A8CA-86070DC12FA0", "'G' is not a hexadecimal digit"),
            ("+DD57A0C-D4F7-486D-A8CA-86070DC12FA0", "'+' is not a hexadecimal digit"),
            (" BDD57A0C-D4F7-486D-A8CA-86070DC12FA0", "' ' is not a hexadecimal digit"),
            ("ßDD57A0C-D4F7-486D-A8CA-86070DC12FA0", "'ß' is not a hexadecimal digit"),
        ] {
            let message = Clsid::parse(text).unwrap_err();
            assert!(message.contains(flaw), "{text}: {message}");
            assert!(message.contains("uuidgen"), "{text}: {message}");
        }
    }

    #[test]
    fn refuses_the_nil_clsid() {
        let message = Clsid::parse("{00000000-0000-0000-0000-000000000000}").unwrap_err();
        assert!(message.contains("nil CLSID") && message.contains("uuidgen"), "{message}");
    }
}
