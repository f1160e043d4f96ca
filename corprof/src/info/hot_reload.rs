//! Modules that the application may change while it runs: hot reload, as by `dotnet watch`.
//!
//! A change comes as new metadata, whose rows, names and signatures are numbered from the end of those that the compiler
//! has written. What a profiler has added has the same numbers, and the application then reads the one for the other: a
//! changed method is not compiled any more, or calls something else. And a replaced body hides the changed one.

use std::sync::OnceLock;

use crate::error::Result;
use crate::info::Info;
use crate::metadata::MetadataImport;
use crate::session::Observer;

/// The runtime lets modules of debug builds be changed if one of these is `debug`.
const VARIABLES: [&str; 2] = ["DOTNET_MODIFIABLE_ASSEMBLIES", "COMPlus_MODIFIABLE_ASSEMBLIES"];

/// Marks the modules of debug builds.
const DEBUGGABLE: &str = "System.Diagnostics.DebuggableAttribute";

/// `DebuggingModes.DisableOptimizations`.
const WITHOUT_OPTIMIZATIONS: u32 = 0x100;

/// Whether the application may change modules, once that was asked.
#[derive(Default)]
struct HotReload(OnceLock<bool>);

impl Observer for HotReload {}

impl Info {
    /// Whether the application may change the module of this metadata. Changes that only a debugger makes are not
    /// known.
    pub(super) fn may_be_changed(&self, metadata: &MetadataImport<'_>) -> Result<bool> {
        let is_on = self.extension::<HotReload>().0.get_or_init(|| self.has_hot_reload());
        if !is_on {
            return Ok(false);
        }
        let Some(assembly) = metadata.assembly()? else { return Ok(false) };
        let attribute = metadata.custom_attribute_named(assembly, DEBUGGABLE)?;
        Ok(attribute.is_some_and(|value| is_debug_build(&value)))
    }

    fn has_hot_reload(&self) -> bool {
        let value = |name: &&str| self.environment_variable(name).ok().flatten();
        VARIABLES.iter().find_map(value).is_some_and(|value| value.eq_ignore_ascii_case("debug"))
    }
}

/// By the value of the attribute, which has a constructor for the modes, and one for two booleans, the second of which is
/// `isJITOptimizerDisabled`. Two bytes are before and behind the arguments.
fn is_debug_build(value: &[u8]) -> bool {
    match *value {
        [_, _, a, b, c, d, _, _] => u32::from_le_bytes([a, b, c, d]) & WITHOUT_OPTIMIZATIONS != 0,
        [_, _, _, is_disabled, _, _] => is_disabled != 0,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_builds_are_told_from_others() {
        assert!(is_debug_build(&[1, 0, 7, 1, 0, 0, 0, 0]), "a debug build of C#");
        assert!(!is_debug_build(&[1, 0, 2, 0, 0, 0, 0, 0]), "a release build");
        assert!(is_debug_build(&[1, 0, 1, 1, 0, 0]));
        assert!(!is_debug_build(&[1, 0, 1, 0, 0, 0]));
    }
}
