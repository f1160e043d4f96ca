use std::io::Write;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use proptest::prelude::*;

use super::*;

const GUID: [u8; 16] = *b"0123456789abcdef";

/// ECMA-335's way to write small numbers.
fn number(value: u32) -> Vec<u8> {
    match value {
        0..0x80 => vec![value as u8],
        _ => (value as u16 | 0x8000).to_be_bytes().to_vec(),
    }
}

fn blob(heap: &mut Vec<u8>, bytes: &[u8]) -> u16 {
    let at = heap.len() as u16;
    heap.extend(number(bytes.len() as u32));
    heap.extend(bytes);
    at
}

/// A portable PDB with one document, `/src/Program.cs`, and a method for each list of IL offsets and lines; line 0 is
/// hidden.
fn pdb(methods: &[&[(u32, u32)]]) -> Vec<u8> {
    let mut blobs = vec![0];
    let parts =
        ["", "src", "Program.cs"].map(|part| if part.is_empty() { 0 } else { blob(&mut blobs, part.as_bytes()) });
    let mut name = vec![b'/'];
    parts.iter().for_each(|part| name.extend(number((*part).into())));
    let name = blob(&mut blobs, &name);
    let points: Vec<u16> = methods.iter().map(|points| blob(&mut blobs, &sequence_points(points))).collect();

    let count = methods.len() as u32;
    let mut header = [&GUID[..], b"time", &[0; 4], &(1u64 << 6).to_le_bytes()].concat();
    header.extend(count.to_le_bytes());
    let mut tables = vec![0, 0, 0, 0, 2, 0, 0, 1];
    tables.extend((0b11u64 << 0x30).to_le_bytes());
    tables.extend([0; 8]);
    tables.extend([1, count].map(u32::to_le_bytes).concat());
    tables.extend([name, 0, 0, 1].map(u16::to_le_bytes).concat());
    points.into_iter().for_each(|points| tables.extend([1, points].map(u16::to_le_bytes).concat()));
    const C_SHARP: [u8; 16] = [0xF8, 0x62, 0x51, 0x3F, 0xC6, 7, 0xD3, 0x11, 0x90, 0x53, 0, 0xC0, 0x4F, 0xA3, 2, 0xA1];

    let streams: [(&[u8], Vec<u8>); 5] = [
        (b"#Pdb\0\0\0\0", header),
        (b"#~\0\0", tables),
        (b"#Strings\0\0\0\0", vec![0; 4]),
        (b"#GUID\0\0\0", C_SHARP.to_vec()),
        (b"#Blob\0\0\0", blobs),
    ];
    let mut file = [&b"BSJB"[..], &[1, 0, 1, 0, 0, 0, 0, 0, 12, 0, 0, 0], b"PDB v1.0\0\0\0\0", &[0, 0, 5, 0]].concat();
    let mut at = file.len() + streams.iter().map(|(name, _)| 8 + name.len()).sum::<usize>();
    let padded = |length: usize| length.next_multiple_of(4);
    for (name, bytes) in &streams {
        file.extend([at as u32, padded(bytes.len()) as u32].map(u32::to_le_bytes).concat());
        file.extend(*name);
        at += padded(bytes.len());
    }
    for (_, mut bytes) in streams {
        bytes.resize(padded(bytes.len()), 0);
        file.extend(bytes);
    }
    file
}

fn sequence_points(points: &[(u32, u32)]) -> Vec<u8> {
    let mut bytes = number(0); // no local variables
    let mut last_offset = 0;
    let mut last_line = None::<u32>;
    for &(offset, line) in points {
        bytes.extend(number(offset - last_offset));
        last_offset = offset;
        if line == 0 {
            bytes.extend([0, 0]);
            continue;
        }
        bytes.extend([0, 5]); // on one line, five columns wide
        match last_line {
            // Lines and columns go up by this much: signed, which is one bit further left.
            Some(last) => bytes.extend([number((line - last) << 1), vec![0]].concat()),
            None => bytes.extend([number(line), vec![1]].concat()),
        }
        last_line = Some(line);
    }
    bytes
}

/// A module with this debug directory: kinds and contents.
fn module(entries: &[(u32, Vec<u8>)]) -> Vec<u8> {
    const SECTION: u32 = 0x200;
    let mut file = vec![0; SECTION as usize];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"MZ");
    put(0x3C, &0x40u32.to_le_bytes());
    put(0x40, b"PE\0\0\x4C\x01\x01\0");
    put(0x40 + 20, &224u16.to_le_bytes());
    let optional = 0x40 + 24;
    put(optional, &0x10Bu16.to_le_bytes());
    put(optional + 92, &16u32.to_le_bytes());
    let size = (entries.len() * size_of::<pe::ImageDebugDirectory>()) as u32;
    put(optional + 96 + 6 * 8, &[0x1000, size].map(u32::to_le_bytes).concat());
    let section = optional + 224;
    put(section, b".text\0\0\0");
    put(section + 8, &[0x1_0000, 0x1000, 0x1_0000, SECTION].map(u32::to_le_bytes).concat());
    let mut at = SECTION + size;
    for (kind, bytes) in entries {
        let entry = [0, 0, 0, *kind, bytes.len() as u32, 0, at];
        file.extend(entry.map(u32::to_le_bytes).concat());
        at += bytes.len() as u32;
    }
    entries.iter().for_each(|(_, bytes)| file.extend(bytes));
    file
}

fn code_view(path: &str) -> (u32, Vec<u8>) {
    (pe::IMAGE_DEBUG_TYPE_CODEVIEW, [b"RSDS", &GUID[..], &[1, 0, 0, 0], path.as_bytes(), b"\0"].concat())
}

fn embedding(pdb: &[u8]) -> (u32, Vec<u8>) {
    let mut compressed = DeflateEncoder::new(Vec::new(), Compression::fast());
    compressed.write_all(pdb).unwrap();
    let length = (pdb.len() as u32).to_le_bytes();
    (EMBEDDED_PORTABLE_PDB, [b"MPDB", &length[..], &compressed.finish().unwrap()].concat())
}

/// The places of the first methods of a module, with these files beside it.
fn places(module: &[u8], beside: &[(&str, &[u8])]) -> Vec<Option<(String, u32)>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("App.dll");
    std::fs::write(&path, module).unwrap();
    beside.iter().for_each(|(name, bytes)| std::fs::write(folder.path().join(name), bytes).unwrap());
    let mut lines = SourceLines::new();
    let mut of = |row| lines.of_method(&path, METHOD_DEF + row).map(|(file, line)| (file.to_owned(), line));
    (0..5).map(&mut of).collect()
}

/// A method that begins with its first line, one that begins with code of no line, one that has none, and a longer one.
const METHODS: [&[(u32, u32)]; 4] =
    [&[(0, 12), (3, 14)], &[(0, 0), (31, 41)], &[(0, 0)], &[(1, 300), (2, 0), (9, 350)]];

fn expected() -> Vec<Option<(String, u32)>> {
    [None, Some(12), Some(41), None, Some(300)].map(|line| Some(("/src/Program.cs".to_owned(), line?))).to_vec()
}

#[test]
fn a_pdb_beside_its_module_or_in_it_tells_where_methods_are() {
    let pdb = pdb(&METHODS);
    // The path is that of the machine that built it.
    for path in ["App.pdb", "/home/someone/obj/App.pdb", "C:\\obj\\App.pdb"] {
        assert_eq!(places(&module(&[code_view(path)]), &[("App.pdb", &pdb)]), expected(), "{path}");
    }
    assert_eq!(places(&module(&[code_view("App.pdb"), embedding(&pdb)]), &[]), expected());
}

#[test]
fn an_offset_in_the_code_has_the_line_of_its_statement() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("App.dll");
    std::fs::write(&path, module(&[code_view("App.pdb"), embedding(&pdb(&METHODS))])).unwrap();
    let mut lines = SourceLines::new();
    let mut line = |row, offset| lines.of_offset(&path, METHOD_DEF + row, offset).map(|(_, line)| line);
    assert_eq!([0, 1, 2, 3, 900].map(|offset| line(1, offset)), [12, 12, 12, 14, 14].map(Some));
    // Code without a line of its own.
    assert_eq!([0, 30, 31].map(|offset| line(2, offset)), [41; 3].map(Some));
    assert_eq!([0, 1, 8, 9].map(|offset| line(4, offset)), [300, 300, 300, 350].map(Some));
    assert_eq!((line(3, 0), line(5, 0), line(0, 0)), (None, None, None));
    assert_eq!(lines.of_offset(&path, 0x0A00_0001, 0), None, "not a method");
}

#[test]
fn code_without_a_line_of_its_own_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("App.dll");
    std::fs::write(&path, module(&[code_view("App.pdb"), embedding(&pdb(&METHODS))])).unwrap();
    let mut lines = SourceLines::new();
    let mut line = |row, offset| lines.of_own_offset(&path, METHOD_DEF + row, offset).map(|(_, line)| line);
    assert_eq!([0, 2, 3, 900].map(|offset| line(1, offset)), [12, 12, 14, 14].map(Some));
    assert_eq!([0, 30, 31].map(|offset| line(2, offset)), [None, None, Some(41)]);
    assert_eq!([0, 1, 2, 8, 9].map(|offset| line(4, offset)), [None, Some(300), None, None, Some(350)]);
    assert_eq!((line(3, 0), line(5, 0), line(0, 0)), (None, None, None));
    assert!(Hidden::of_pdb(b"BSJB").is_none() && Hidden::of_pdb(&[]).is_none());
}

#[test]
fn without_its_pdb_a_module_has_no_lines() {
    let nothing = vec![None; 5];
    let pdb = pdb(&METHODS);
    let bare = module(&[code_view("App.pdb")]);
    assert_eq!(places(&bare, &[]), nothing, "not there");
    assert_eq!(places(&module(&[]), &[("App.pdb", &pdb)]), nothing, "not named");
    assert_eq!(places(&module(&[code_view("..")]), &[("App.pdb", &pdb)]), nothing, "no file");
    let mut other = pdb.clone();
    let id = other.windows(16).position(|bytes| bytes == GUID).unwrap();
    other[id] += 1;
    assert_eq!(places(&bare, &[("App.pdb", &other)]), nothing, "of another build");
    assert_eq!(places(&bare, &[("App.pdb", b"Microsoft C/C++ MSF 7.00\r\n")]), nothing, "not a portable one");
    assert_eq!(places(b"\x7fELF", &[("App.pdb", &pdb)]), nothing, "no module");
    let mut lines = SourceLines::new();
    assert_eq!(lines.of_method(Path::new("/no/such/App.dll"), METHOD_DEF + 1), None);
    assert_eq!(lines.of_method(Path::new("/no/such/App.dll"), 0x0A00_0001), None, "not a method");
}

#[test]
fn what_is_too_large_is_left_alone() {
    let bomb = embedding(&vec![0; 1 << 20]);
    assert!(embedded(&bomb.1, 1 << 20).is_some());
    assert!(embedded(&bomb.1, (1 << 20) - 1).is_none());
    assert!(read_up_to(&[0; 9][..], 8).is_none());
}

proptest! {
    #[test]
    fn damaged_files_are_unknown_lines(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let damage = |bytes: &mut Vec<u8>| {
            changes.iter().for_each(|(at, value)| { let at = at.index(bytes.len()); bytes[at] = *value });
            if is_cut {
                bytes.truncate(cut.index(bytes.len()));
            }
        };
        let (mut pdb, mut module) = (pdb(&METHODS), module(&[code_view("App.pdb"), embedding(&pdb(&METHODS))]));
        damage(&mut module);
        places(&module, &[]);
        damage(&mut pdb);
        places(&self::module(&[code_view("App.pdb")]), &[("App.pdb", &pdb)]);
    }
}
