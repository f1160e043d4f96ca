//! Files that are none.

use super::*;

#[test]
fn what_is_no_assembly_is_named() {
    assert!(matches!(Assembly::parse(Vec::new()), Err(FileError::Pe(_))));
    assert!(matches!(Assembly::parse(b"MZ".to_vec()), Err(FileError::Pe(_))));
    assert!(matches!(Assembly::parse(vec![0; 4096]), Err(FileError::Pe(_))));
    assert!(matches!(Assembly::open("/nowhere/at all.dll"), Err(FileError::Io(_))));
    // An ELF file is no PE file, though the reader recognises it.
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(64, 0);
    assert!(Assembly::parse(elf).is_err());
}
