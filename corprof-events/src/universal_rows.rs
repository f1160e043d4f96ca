//! The events of `Universal.System`, as rows of a manifest.

use crate::manifest_event::ManifestEvent;
use crate::scalar::Scalar;
use crate::types::{ManifestField, ManifestType};

const fn row(id: u16, name: &'static str, fields: &'static [ManifestField]) -> ManifestEvent {
    ManifestEvent { id, version: 0, level: 4, keywords: 0, name, fields }
}

const fn number(name: &'static str) -> ManifestField {
    ManifestField { name, ty: ManifestType::Scalar(Scalar::VarUInt), is_count: false }
}

const fn text(name: &'static str) -> ManifestField {
    ManifestField { name, ty: ManifestType::Scalar(Scalar::Utf8Counted), is_count: false }
}

/// By number.
pub(crate) static UNIVERSAL_SYSTEM: &[ManifestEvent] = &[
    row(0, "ExistingProcess", &[number("NamespaceId"), text("Name"), text("NamespaceName")]),
    row(1, "ProcessCreate", &[number("NamespaceId"), text("Name"), text("NamespaceName")]),
    row(2, "ProcessExit", &[]),
    row(
        3,
        "ProcessMapping",
        &[
            number("Id"),
            number("StartAddress"),
            number("EndAddress"),
            number("FileOffset"),
            text("FileName"),
            number("MetadataId"),
        ],
    ),
    row(
        4,
        "ProcessSymbol",
        &[number("Id"), number("MappingId"), number("StartAddress"), number("EndAddress"), text("Name")],
    ),
    row(5, "ProcessMappingMetadata", &[number("Id"), text("SymbolMetadata"), text("VersionMetadata")]),
];
