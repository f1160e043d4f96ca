//! Random identifiers of messages.

use std::hash::{BuildHasher, RandomState};

/// A random number.
pub(super) fn random() -> u128 {
    // The standard library keys each state differently.
    let half = || u128::from(RandomState::new().hash_one(0));
    half() << 64 | half()
}

/// A random UUID (version 4).
pub(super) fn uuid() -> String {
    let number = random() & !(0xf << 76) & !(0b11 << 62) | 0x4 << 76 | 0b10 << 62;
    let text = format!("{number:032x}");
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_random_uuids() {
        let one = uuid();
        let other = uuid();
        assert_ne!(one, other);
        let shape: Vec<usize> = one.split('-').map(str::len).collect();
        assert_eq!(shape, [8, 4, 4, 4, 12]);
        assert_eq!(&one[14..15], "4");
        assert!("89ab".contains(&one[19..20]), "{one}");
    }
}
