//! The columns of the metadata tables (ECMA-335 II.22), and how wide they are in a file.

/// The content of a column.
#[derive(Clone, Copy, Debug)]
pub(super) enum Column {
    U2,
    U4,
    String,
    Guid,
    Blob,
    Row(u8),
    Coded(Coded),
}

/// The coded indices (II.24.2.6): how many low bits are the tag, and the table of each tag.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coded {
    pub(super) bits: u8,
    pub(super) tables: &'static [u8],
}

/// A tag that stands for no table.
pub(super) const NO_TABLE: u8 = 0xff;

const fn coded(bits: u8, tables: &'static [u8]) -> Coded {
    Coded { bits, tables }
}

pub(super) const TYPE_DEF_OR_REF: Coded = coded(2, &[0x02, 0x01, 0x1b]);
pub(super) const MEMBER_REF_PARENT: Coded = coded(3, &[0x02, 0x01, 0x1a, 0x06, 0x1b]);
pub(super) const METHOD_DEF_OR_REF: Coded = coded(1, &[0x06, 0x0a]);
pub(super) const RESOLUTION_SCOPE: Coded = coded(2, &[0x00, 0x1a, 0x23, 0x01]);
pub(super) const IMPLEMENTATION: Coded = coded(2, &[0x26, 0x23, 0x27]);
const HAS_CONSTANT: Coded = coded(2, &[0x04, 0x08, 0x17]);
pub(super) const HAS_CUSTOM_ATTRIBUTE: Coded = coded(
    5,
    &[
        0x06, 0x04, 0x01, 0x02, 0x08, 0x09, 0x0a, 0x00, 0x0e, 0x17, 0x14, 0x11, 0x1a, 0x1b, 0x20, 0x23, 0x26, 0x27,
        0x28, 0x2a, 0x2c, 0x2b,
    ],
);
const HAS_FIELD_MARSHAL: Coded = coded(1, &[0x04, 0x08]);
const HAS_DECL_SECURITY: Coded = coded(2, &[0x02, 0x06, 0x20]);
const HAS_SEMANTICS: Coded = coded(1, &[0x14, 0x17]);
const MEMBER_FORWARDED: Coded = coded(1, &[0x04, 0x06]);
pub(super) const CUSTOM_ATTRIBUTE_TYPE: Coded = coded(3, &[NO_TABLE, NO_TABLE, 0x06, 0x0a]);
pub(super) const TYPE_OR_METHOD_DEF: Coded = coded(1, &[0x02, 0x06]);

/// How many tables have a meaning.
pub(super) const TABLES: usize = 0x2d;

/// The columns of a table.
pub(super) const fn columns(table: u8) -> &'static [Column] {
    use Column::{Blob, Coded as C, Guid, Row, String as S, U2, U4};
    match table {
        0x00 => &[U2, S, Guid, Guid, Guid],
        0x01 => &[C(RESOLUTION_SCOPE), S, S],
        0x02 => &[U4, S, S, C(TYPE_DEF_OR_REF), Row(0x04), Row(0x06)],
        0x03 => &[Row(0x04)],
        0x04 => &[U2, S, Blob],
        0x05 => &[Row(0x06)],
        0x06 => &[U4, U2, U2, S, Blob, Row(0x08)],
        0x07 => &[Row(0x08)],
        0x08 => &[U2, U2, S],
        0x09 => &[Row(0x02), C(TYPE_DEF_OR_REF)],
        0x0a => &[C(MEMBER_REF_PARENT), S, Blob],
        0x0b => &[U2, C(HAS_CONSTANT), Blob],
        0x0c => &[C(HAS_CUSTOM_ATTRIBUTE), C(CUSTOM_ATTRIBUTE_TYPE), Blob],
        0x0d => &[C(HAS_FIELD_MARSHAL), Blob],
        0x0e => &[U2, C(HAS_DECL_SECURITY), Blob],
        0x0f => &[U2, U4, Row(0x02)],
        0x10 => &[U4, Row(0x04)],
        0x11 => &[Blob],
        0x12 => &[Row(0x02), Row(0x14)],
        0x13 => &[Row(0x14)],
        0x14 => &[U2, S, C(TYPE_DEF_OR_REF)],
        0x15 => &[Row(0x02), Row(0x17)],
        0x16 => &[Row(0x17)],
        0x17 => &[U2, S, Blob],
        0x18 => &[U2, Row(0x06), C(HAS_SEMANTICS)],
        0x19 => &[Row(0x02), C(METHOD_DEF_OR_REF), C(METHOD_DEF_OR_REF)],
        0x1a => &[S],
        0x1b => &[Blob],
        0x1c => &[U2, C(MEMBER_FORWARDED), S, Row(0x1a)],
        0x1d => &[U4, Row(0x04)],
        0x1e => &[U4, U4],
        0x1f => &[U4],
        0x20 => &[U4, U2, U2, U2, U2, U4, Blob, S, S],
        0x21 => &[U4],
        0x22 => &[U4, U4, U4],
        0x23 => &[U2, U2, U2, U2, U4, Blob, S, S, Blob],
        0x24 => &[U4, Row(0x23)],
        0x25 => &[U4, U4, U4, Row(0x23)],
        0x26 => &[U4, S, Blob],
        0x27 => &[U4, U4, S, S, C(IMPLEMENTATION)],
        0x28 => &[U4, U4, S, C(IMPLEMENTATION)],
        0x29 => &[Row(0x02), Row(0x02)],
        0x2a => &[U2, U2, C(TYPE_OR_METHOD_DEF), S],
        0x2b => &[C(METHOD_DEF_OR_REF), Blob],
        0x2c => &[Row(0x2a), C(TYPE_DEF_OR_REF)],
        _ => &[],
    }
}
