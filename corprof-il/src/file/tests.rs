//! Files that are none, and files that are laid out in ways that compilers do not choose.

use super::assembly::Assembly;
use super::metadata::Metadata;
use super::schema::{Column, TABLES, columns};
use super::*;
use crate::body::Body;
use crate::verify::Verifier;

#[test]
fn what_is_no_assembly_is_named() {
    assert!(matches!(Assembly::parse(Vec::new()), Err(FileError::Pe(_))));
    assert!(matches!(Assembly::parse(b"MZ".to_vec()), Err(FileError::Pe(_))));
    assert!(matches!(Assembly::parse(vec![0; 4096]), Err(FileError::Pe(_))));
    assert!(matches!(Assembly::open("/nowhere/at all.dll"), Err(FileError::Io(_))));
    // An ELF file is not a PE file, though the reader recognises it.
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(64, 0);
    assert!(Assembly::parse(elf).is_err());
}

/// Changes of the layout of metadata that leave their meaning as it is. Runtimes load such files.
#[derive(Clone, Copy, Debug, Default)]
struct Layout {
    /// The tables of debug information are in the assembly.
    has_debug_tables: bool,
    /// Each heap comes a second time, with zeros, where runtimes do not read it.
    is_twice: bool,
    /// The stream of tables is `#-`, and the names of heaps are in lower case.
    is_uncompressed: bool,
    /// There is a stream `#JTD` as well, and all indices have four bytes.
    is_wide: bool,
}

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

fn set_word(bytes: &mut [u8], at: usize, value: usize) {
    bytes[at..at + 4].copy_from_slice(&u32::try_from(value).unwrap().to_le_bytes());
}

/// The stream of tables anew.
fn tables(file: &[u8], old: &[u8], metadata: &Metadata, layout: Layout) -> Vec<u8> {
    let mut new = old[..24].to_vec();
    let present = u64::from_le_bytes(old[8..16].try_into().unwrap());
    let debug = if layout.has_debug_tables { 0xff << 0x30 } else { 0 };
    new[8..16].copy_from_slice(&(present | debug).to_le_bytes());
    let of_rows = 4 * present.count_ones() as usize;
    new.extend(&old[24..24 + of_rows]);
    // One row of each, of the size that it has if no table is large: the widest has 20 bytes.
    if layout.has_debug_tables {
        new.extend([1, 0, 0, 0].repeat(8));
    }
    if layout.is_wide {
        for table in 0..TABLES as u8 {
            for row in 1..=metadata.rows_of(table) {
                for (number, column) in columns(table).iter().enumerate() {
                    let value = metadata.cell(file, table, row, number).unwrap().to_le_bytes();
                    new.extend(if matches!(column, Column::U2) { &value[..2] } else { &value });
                }
            }
        }
    } else {
        new.extend(&old[24 + of_rows..]);
    }
    if layout.has_debug_tables {
        new.extend([0; 8 * 20]);
    }
    new.resize(new.len().next_multiple_of(4), 0);
    new
}

/// The file with its metadata at the end, in this layout.
fn laid_out(original: &[u8], layout: Layout) -> Vec<u8> {
    let mut file = original.to_vec();
    let pe = word(&file, 0x3c);
    let sections = usize::from(file[pe + 6]);
    let optional = pe + 24;
    let size_of_optional = usize::from(u16::from_le_bytes([file[pe + 20], file[pe + 21]]));
    let headers: Vec<usize> = (0..sections).map(|number| optional + size_of_optional + number * 40).collect();
    let directories = optional + if file[optional] == 0x0b && file[optional + 1] == 2 { 112 } else { 96 };
    let at_address = |file: &[u8], address: usize| {
        let section = headers.iter().find(|at| {
            let start = word(file, **at + 12);
            (start..start + word(file, **at + 16)).contains(&address)
        });
        section.map(|at| address - word(file, at + 12) + word(file, at + 20)).unwrap()
    };
    let cli = at_address(&file, word(&file, directories + 14 * 8));
    let root = at_address(&file, word(&file, cli + 8));
    let metadata = Metadata::read(&file, root).unwrap();

    let head = 16 + word(&file, root + 12);
    let mut streams: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut at = root + head + 4;
    for _ in 0..file[root + head + 2] {
        let start = root + word(&file, at);
        let content = &file[start..start + word(&file, at + 4)];
        let name: Vec<u8> = file[at + 8..].iter().copied().take_while(|byte| *byte != 0).collect();
        at += 8 + (name.len() + 1).next_multiple_of(4);
        let is_tables = name == b"#~";
        let content = if is_tables { tables(&file, content, &metadata, layout) } else { content.to_vec() };
        streams.push(match is_tables && layout.is_uncompressed {
            true => (b"#-".to_vec(), content),
            false if layout.is_uncompressed => (name.to_ascii_lowercase(), content),
            false => (name, content),
        });
    }
    if layout.is_twice {
        let heaps: Vec<_> =
            streams.iter().filter(|(name, _)| name != b"#~" && name != b"#-").map(|(name, _)| name.clone()).collect();
        let zeros = heaps.into_iter().map(|name| (name, vec![0; 16]));
        let at = if layout.is_uncompressed { streams.len() } else { 0 };
        streams.splice(at..at, zeros);
    }
    if layout.is_wide {
        streams.insert(0, (b"#JTD".to_vec(), Vec::new()));
    }

    let mut new = file[root..root + head + 2].to_vec();
    new.extend((streams.len() as u16).to_le_bytes());
    let names: usize = streams.iter().map(|(name, _)| 8 + (name.len() + 1).next_multiple_of(4)).sum();
    let mut offset = new.len() + names;
    for (name, content) in &streams {
        new.extend((offset as u32).to_le_bytes());
        new.extend((content.len() as u32).to_le_bytes());
        let mut name = name.clone();
        name.resize((name.len() + 1).next_multiple_of(4), 0);
        new.extend(name);
        offset += content.len().next_multiple_of(4);
    }
    for (_, content) in &streams {
        new.extend(content);
        new.resize(new.len().next_multiple_of(4), 0);
    }

    let last = *headers.last().unwrap();
    let end = word(&file, last + 20) + word(&file, last + 16);
    file.truncate(end);
    let address = word(&file, last + 12) + word(&file, last + 16);
    set_word(&mut file, cli + 8, address);
    set_word(&mut file, cli + 12, new.len());
    new.resize(new.len().next_multiple_of(0x200), 0);
    file.extend(&new);
    let size = word(&file, last + 16) + new.len();
    set_word(&mut file, last + 16, size);
    set_word(&mut file, last + 8, size);
    let whole = (word(&file, last + 12) + size).next_multiple_of(0x2000);
    set_word(&mut file, optional + 56, whole);
    file
}

/// The methods with the names of what they call, as far as a file has them.
fn contents(bytes: Vec<u8>) -> Vec<String> {
    let mut set = Assemblies::new();
    set.add(Assembly::parse(bytes).unwrap());
    let mut all = Vec::new();
    for here in set.iter() {
        let mut verifier = Verifier::new(&here);
        for method in here.assembly().methods() {
            let mut text = here.token_name(method.token.token()).unwrap();
            if let Some(bytes) = here.assembly().body_bytes(method).unwrap() {
                let (body, _) = Body::parse_prefix(bytes).unwrap();
                verifier.verify(&body, &here.context(method).unwrap()).unwrap();
                text += &body.display_with(&|token| here.token_name(token)).to_string();
            }
            all.push(text);
        }
    }
    all
}

#[test]
fn files_of_odd_layout_are_read() {
    let cache = std::env::home_dir().unwrap_or_default().join(".cache/corprof");
    let path =
        cache.join("dotnet-8.0.4-linux-x64/shared/Microsoft.NETCore.App/8.0.4/System.Diagnostics.StackTrace.dll");
    let Ok(original) = std::fs::read(&path) else {
        eprintln!("skipped: there is no {}", path.display());
        return;
    };
    let expected = contents(original.clone());
    assert!(expected.len() > 1);
    let plain = Layout::default();
    for layout in [
        plain,
        Layout { has_debug_tables: true, ..plain },
        Layout { is_twice: true, ..plain },
        Layout { is_uncompressed: true, ..plain },
        Layout { is_uncompressed: true, is_twice: true, ..plain },
        Layout { is_uncompressed: true, is_wide: true, ..plain },
        Layout { has_debug_tables: true, is_wide: true, is_twice: true, is_uncompressed: true },
    ] {
        let laid_out = laid_out(&original, layout);
        assert_eq!(contents(laid_out), expected, "{layout:?}");
    }
}
