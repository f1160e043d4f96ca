//! Numbers in as few bytes as they need: seven bits a byte, the lowest first.

/// Appends `value`: 1 to 10 bytes.
pub(crate) fn push(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Reads the number at `*at` and moves behind it. `None` if the bytes end early or the number has more than 64 bits.
pub(crate) fn read(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{push, read};

    #[test]
    fn numbers_of_every_width_come_back() {
        let mut bytes = Vec::new();
        let values: Vec<u64> = (0..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit]).chain([u64::MAX]).collect();
        values.iter().for_each(|&value| push(&mut bytes, value));
        let mut at = 0;
        for value in values {
            assert_eq!(read(&bytes, &mut at), Some(value));
        }
        assert_eq!(at, bytes.len());
        assert_eq!(read(&bytes, &mut at), None);
        assert_eq!(read(&[0xff; 10], &mut 0), None, "more than 64 bits");
    }
}
