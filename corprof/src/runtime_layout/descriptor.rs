//! What the runtime says of its own layout: the data descriptor that .NET 9 and later export for debuggers. Its form is
//! described in dotnet/runtime, in the folder of the data contracts ("contract-descriptor").

use std::collections::HashMap;

use tinyjson::JsonValue;

use super::memory::{number, word, words};

/// The name of the exported structure.
pub(crate) const SYMBOL: &std::ffi::CStr = c"DotNetRuntimeContractDescriptor";

/// How it begins: `DNCCDAC`, so that the order of bytes shows.
const MAGIC: u64 = 0x0043_4144_4343_4e44;
/// More than any text has.
const MOST_BYTES: u32 = 4 << 20;
const MOST_POINTERS: u32 = 1 << 16;

/// Offsets of fields, and addresses of globals.
#[derive(Debug)]
pub(crate) struct Descriptor {
    layout: JsonValue,
    pointers: Vec<usize>,
}

impl Descriptor {
    /// Reads the structure at this address.
    pub(crate) fn read(address: usize) -> Option<Self> {
        if word(address)? as u64 != MAGIC {
            return None;
        }
        let size = number(address + 12).filter(|size| *size <= MOST_BYTES)?;
        let text = word(address + 16)?;
        let count = number(address + 24).filter(|count| *count <= MOST_POINTERS)?;
        let pointers = words(word(address + 32)?, count as usize);
        let mut bytes = vec![0; size as usize];
        if !crate::system::read_memory(text, &mut bytes) || pointers.len() != count as usize {
            return None;
        }
        let layout = std::str::from_utf8(&bytes).ok()?.parse().ok()?;
        Some(Self { layout, pointers })
    }

    /// The offset of a field.
    pub(crate) fn offset(&self, class: &str, field: &str) -> Option<usize> {
        let offset = member(member(member(&self.layout, "types")?, class)?, field)?;
        // A number, or an array of a number and a type.
        index(first(offset).unwrap_or(offset))
    }

    /// The size of a type.
    pub(crate) fn size(&self, class: &str) -> Option<usize> {
        self.offset(class, "!")
    }

    /// The value of a global that is a pointer: the address of a variable.
    pub(crate) fn global(&self, name: &str) -> Option<usize> {
        // `[[index], type]`, or `[index]` without a type.
        let value = first(member(member(&self.layout, "globals")?, name)?)?;
        self.pointers.get(index(first(value).unwrap_or(value))?).copied()
    }
}

fn member<'v>(value: &'v JsonValue, name: &str) -> Option<&'v JsonValue> {
    value.get::<HashMap<String, JsonValue>>()?.get(name)
}

fn first(value: &JsonValue) -> Option<&JsonValue> {
    value.get::<Vec<JsonValue>>()?.first()
}

/// A whole number that is an offset or an index.
fn index(value: &JsonValue) -> Option<usize> {
    let number = *value.get::<f64>()?;
    (number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number)).then_some(number as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_globals_are_found() {
        let text = r#"{"types":{"Thread":{"!":900,"Id":16,"Link":[112,"pointer"]}},
                       "globals":{"Table":[[1],"pointer"],"Plain":[0]}}"#;
        let pointers = [7_usize, 4096];
        let mut structure = [0_usize; 5];
        structure[0] = MAGIC as usize;
        structure[1] = text.len() << 32;
        structure[2] = text.as_ptr().expose_provenance();
        structure[3] = pointers.len();
        // 512 bytes are read at once.
        let memory: Vec<usize> = pointers.into_iter().chain([0; 64]).collect();
        structure[4] = memory.as_ptr().expose_provenance();
        let found = Descriptor::read(structure.as_ptr().expose_provenance()).unwrap();
        assert_eq!(found.offset("Thread", "Id"), Some(16));
        assert_eq!(found.offset("Thread", "Link"), Some(112));
        assert_eq!(found.size("Thread"), Some(900));
        assert_eq!(found.offset("Thread", "Name"), None);
        assert_eq!(found.global("Table"), Some(4096));
        assert_eq!(found.global("Plain"), Some(7));
        assert_eq!(found.global("Other"), None);
        structure[0] = 1;
        assert!(Descriptor::read(structure.as_ptr().expose_provenance()).is_none());
    }
}
