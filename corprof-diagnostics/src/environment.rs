//! The environment of a process, as its runtime has it.

use crate::ipc::Invalid;
use corprof_nettrace::bytes::{Cursor, Malformed};

/// An environment of more bytes is not read.
pub(crate) const LARGEST: usize = 4 << 20;

/// The environment variables of a process.
///
/// The runtime's current variables, not those that the process was started with. They include those set by
/// [`Client::set_environment_variable`](crate::Client::set_environment_variable).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    variables: Vec<(String, String)>,
}

impl Environment {
    /// Reads the data after the answer: a count, then a `NAME=VALUE` for each.
    ///
    /// # Errors
    /// If it is too short.
    pub fn decode(bytes: &[u8]) -> Result<Self, Invalid> {
        Self::read(bytes).map_err(|_| Invalid("the environment is shorter than it says"))
    }

    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(bytes);
        let count = cursor.count()?;
        let mut variables = Vec::new();
        for _ in 0..count {
            let variable = cursor.counted_utf16()?.ok_or(Malformed)?;
            // On Windows there are names that begin with `=`.
            let split = variable.char_indices().skip(1).find(|(_, unit)| *unit == '=').map(|(at, _)| at);
            let (name, value) = split.and_then(|at| variable.split_at_checked(at)).unwrap_or((&variable, ""));
            variables.push((name.to_owned(), value.strip_prefix('=').unwrap_or(value).to_owned()));
        }
        Ok(Self { variables })
    }

    /// The value of a variable: of the first one of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// All variables, in the order of the process.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipc::Payload;

    #[test]
    fn variables_have_names_and_values() -> Result<(), Invalid> {
        let mut payload = Payload::default();
        payload.count(5);
        for variable in ["A=1", "B=x=y", "=C:=C:\\", "D", "E="] {
            payload.string(variable);
        }
        let environment = Environment::decode(&payload.finish())?;
        let expected = [("A", "1"), ("B", "x=y"), ("=C:", "C:\\"), ("D", ""), ("E", "")];
        assert_eq!(environment.iter().collect::<Vec<_>>(), expected);
        assert_eq!(environment.get("B"), Some("x=y"));
        assert_eq!(Environment::decode(&[0xff; 4]), Err(Invalid("the environment is shorter than it says")));
        Ok(())
    }
}
