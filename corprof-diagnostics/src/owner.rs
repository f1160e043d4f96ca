//! Whose a process is.

use std::fmt;

/// The user of a process, where the system shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner(Option<String>);

impl Owner {
    /// The user with whose rights the process reads files: `/proc/PID` itself may belong to root.
    #[cfg(target_os = "linux")]
    pub(crate) fn of(pid: u32) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
        let Some(number) = users.split_ascii_whitespace().last() else { return Self(None) };
        let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        Self(Some(name(number, &accounts)))
    }

    /// The user of a process is visible on Linux only.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn of(_pid: u32) -> Self {
        Self(None)
    }
}

/// The name of a user; without one its number, as `sudo -u` takes it.
#[cfg(any(target_os = "linux", test))]
fn name(number: &str, accounts: &str) -> String {
    let named = accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| format!("#{number}"))
}

/// Whose it is, and what helps.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(user) => write!(f, "the user {user}: use that account (sudo -u {user}), or root's (sudo)"),
            None => f.write_str("another user: use that user's account, or root's"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_a_name_has_a_number() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\nweb:x:33:33::/:/bin/false\n";
        assert_eq!(name("33", accounts), "web");
        assert_eq!(name("34", accounts), "#34");
        let text = Owner(Some("web".to_owned())).to_string();
        assert_eq!(text, "the user web: use that account (sudo -u web), or root's (sudo)");
    }
}
