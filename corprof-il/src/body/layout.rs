//! The layout of a body: its choice among the encodings of the same instructions.

/// Bits of headers and sections (ECMA-335 II.25.4).
pub(super) mod format {
    /// The kind of a header, in the two lowest bits of the first byte.
    pub(in crate::body) const KIND: u8 = 0b11;
    pub(in crate::body) const TINY: u8 = 0b10;
    /// A fat header, in the three lowest bits.
    pub(in crate::body) const FAT: u8 = 0b011;
    pub(in crate::body) const FAT_MASK: u8 = 0b111;
    pub(in crate::body) const MORE_SECTIONS: u16 = 0x08;
    pub(in crate::body) const INIT_LOCALS: u16 = 0x10;
    pub(in crate::body) const FAT_HEADER: usize = 12;
    pub(in crate::body) const SECTION_EH: u8 = 0x01;
    pub(in crate::body) const SECTION_KIND: u8 = 0x3f;
    pub(in crate::body) const SECTION_FAT: u8 = 0x40;
    pub(in crate::body) const SECTION_MORE: u8 = 0x80;
    pub(in crate::body) const SECTION_HEADER: usize = 4;
    pub(in crate::body) const SMALL_CLAUSE: usize = 12;
    pub(in crate::body) const FAT_CLAUSE: usize = 24;
    /// The most clauses of a small section, whose length is one byte.
    pub(in crate::body) const SMALL_CLAUSES: usize = 20;
    /// The most clauses of a fat section, whose length is three bytes.
    pub(in crate::body) const FAT_CLAUSES: usize = 699_050;
    pub(in crate::body) const TINY_CODE: usize = 63;
    pub(in crate::body) const TINY_STACK: u16 = 8;
}

/// The encoding of the parsed bytes. New parts have the default: the smallest encoding.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    /// Whether the header was fat, though a tiny one might do.
    pub(super) is_fat: bool,
    /// The flags of a fat header that have no meaning here.
    pub(super) other_flags: u16,
    /// The bytes of a fat header beyond its 12.
    pub(super) header_rest: Box<[u8]>,
    pub(super) sections: Vec<Section>,
}

/// A data section after the code.
#[derive(Clone, Debug)]
pub(super) struct Section {
    /// The bytes between the code or the section before and this one, unless they are zero.
    pub(super) padding: [u8; 3],
    pub(super) is_fat: bool,
    /// The length field leaves out the section's own header, as some compilers have it.
    pub(super) omits_header: bool,
    /// The two bytes in the header of a small section that mean nothing.
    pub(super) reserved: [u8; 2],
    pub(super) content: Content,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    /// As many clauses of the table.
    Clauses(u32),
    /// A section of a kind that no runtime reads: its kind, and the bytes after its header.
    Other(u8, Box<[u8]>),
}

impl Layout {
    /// How many clauses the sections have.
    pub(super) fn clauses(&self) -> usize {
        let counts = self.sections.iter().map(|section| match section.content {
            Content::Clauses(count) => count as usize,
            Content::Other(..) => 0,
        });
        counts.sum()
    }
}
