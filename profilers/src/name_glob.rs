//! [`part_glob`]: globs of names, in which brackets are letters like others.

/// The glob that a user means by `text`: only `*` and `?` stand for other letters, as names have brackets (`byte[]`,
/// `[native code]`), and a text without them is a part of a name.
#[must_use]
pub fn part_glob(text: &str) -> String {
    let mut glob = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '[' | ']' | '{' | '}' | '\\' => glob.extend(['[', letter, ']']),
            _ => glob.push(letter),
        }
    }
    if text.contains(['*', '?']) { glob } else { format!("*{glob}*") }
}

#[cfg(test)]
mod tests {
    use globset::Glob;

    use super::*;

    #[test]
    fn brackets_are_letters_and_a_plain_text_is_a_part() {
        let matches = |text: &str, name: &str| Glob::new(&part_glob(text)).unwrap().compile_matcher().is_match(name);
        for name in ["[unknown code]", "Shop.Save(byte[])", "a{b}", r"a\b", "Shop.List<int>.Add(int)"] {
            assert!(matches(name, name) && matches(name, &format!("in {name} too")), "{name}");
        }
        assert!(matches("Shop.*(byte[]?)", "Shop.Save(byte[],)") && !matches("Shop.*(byte[]?)", "Shop.Save(byte[])"));
        assert!(!matches("[ab]", "a") && !matches("Shop.*", "My.Shop.Save()"));
    }
}
