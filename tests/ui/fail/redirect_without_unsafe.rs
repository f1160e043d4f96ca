//! The other method may free the address that this one is passed.
use corprof::edit::{EditError, MethodEdit};
use corprof::metadata::MethodDef;

fn log_to(edit: &mut MethodEdit<'_>, log: MethodDef, free: MethodDef) -> Result<usize, EditError> {
    edit.redirect(log, free)
}

fn main() {}
