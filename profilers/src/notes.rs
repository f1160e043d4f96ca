//! Lines that profilers and the command print alike.

/// Prints a line on standard error. That its reader has gone, as a terminal that was closed, ends nothing: the macro of
/// the standard library would panic.
#[macro_export]
macro_rules! eprintln {
    ($($text:tt)*) => {{
        let _ = ::std::io::Write::write_fmt(
            &mut ::std::io::stderr(),
            ::std::format_args!("{}\n", ::std::format_args!($($text)*)),
        );
    }};
}

/// For how many of the stacks in resumed async methods callers are known; `more` is said of these. None if there are no
/// such stacks.
///
/// ```
/// let note = corprof_profilers::known_callers(3, 4, "").unwrap();
/// assert!(note.starts_with("Async callers: known of 75.0 % of 4 stacks in resumed methods. "), "{note}");
/// assert_eq!(corprof_profilers::known_callers(0, 0, ""), None);
/// ```
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "a share, of fewer stacks than 2^52")]
pub fn known_callers(known: u64, resumed: u64, more: &str) -> Option<String> {
    if resumed == 0 {
        return None;
    }
    let share = 100.0 * known as f64 / resumed as f64;
    Some(format!(
        "Async callers: known of {share:.1} % of {resumed} stacks in resumed methods{more}. The others have their \
         physical stacks"
    ))
}
