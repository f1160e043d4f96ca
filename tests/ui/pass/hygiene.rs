//! Nothing that the macros expand to looks a name up in the user's scope.
#![no_implicit_prelude]
#![deny(warnings, missing_docs, unsafe_code, unreachable_pub)]
#![allow(non_camel_case_types, non_upper_case_globals, dead_code)]

mod core {}
mod std {}
struct u8;
struct str;
struct Send;
struct Sync;
struct Default;
struct Guid;
struct Event;
struct EventSet;
const events: () = ();
const fn callbacks_come_from_many_threads_at_once() {}

#[derive(::corprof::Profiler, ::std::default::Default)]
#[profiler(clsid = "BDD57A0C-D4F7-486D-A8CA-86070DC12FA0", min_info = 15)]
struct MANIFEST(bool);

#[::corprof::callbacks]
impl ::corprof::Callbacks for MANIFEST {
    fn thread_created(&self, _cx: &mut ::corprof::InCallback<'_>, _thread: ::corprof::id::ThreadId) {}

    fn thread_destroyed(
        &self,
        cx: &mut ::corprof::InCallback<'_>,
        thread: ::corprof::id::ThreadId,
    ) -> ::corprof::Result<()> {
        cx.os_thread_id(thread)?;
        ::std::result::Result::Ok(())
    }
}

/// Nothing to do.
pub fn main() {}
