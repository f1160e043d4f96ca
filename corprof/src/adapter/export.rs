//! `export!`: defines the functions that the runtime looks for in a library.

/// Exports profilers from a library: `corprof::export!(First, Second);`
///
/// [`#[derive(Profiler)]`](derive@crate::Profiler) does this itself for the one profiler that a library usually has. In
/// a library with several, write `#[profiler(…, no_export)]` on each and export them all in one place. Two exports in
/// one library are an error about a symbol whose name says this.
#[macro_export]
macro_rules! export {
    ($($profiler:ty),+ $(,)?) => {
        const _: () = {
            $crate::__private::assert_distinct(&[$($crate::__private::ClassEntry::of::<$profiler>()),+]);

            /// A second export is a compile error about this symbol, so its name says what to do. Its name is
            /// alphabetically first, because only the first duplicate symbol is reported.
            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals, reason = "it is a sentence")]
            static A_LIBRARY_EXPORTS_ONCE__say_no_export_in_each_derive__and_list_all_profilers_in_one_corprof_export: ::core::primitive::u8 = 0;

            /// The turn to suspend the runtime: all libraries in a process that are made with corprof use that of the
            /// first of them (`corprof/src/suspension.rs`).
            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals, reason = "it is looked up by this name")]
            static corprof_turn_to_suspend_1: ::core::sync::atomic::AtomicU32 = ::core::sync::atomic::AtomicU32::new(0);

            /// The runtime calls this to get a profiler's class factory.
            ///
            /// # Safety
            /// The pointers are null or valid by COM's rules.
            #[unsafe(no_mangle)]
            unsafe extern "system" fn DllGetClassObject(
                clsid: *const $crate::Guid,
                iid: *const $crate::Guid,
                out: *mut *mut ::core::ffi::c_void,
            ) -> $crate::__private::HRESULT {
                // SAFETY: passed on unchanged.
                unsafe {
                    $crate::__private::dll_get_class_object(
                        &[$($crate::__private::ClassEntry::of::<$profiler>()),+],
                        clsid,
                        iid,
                        out,
                    )
                }
            }

            /// The runtime calls this to ask whether the library may be unloaded: never, as its code may be running.
            #[unsafe(no_mangle)]
            extern "system" fn DllCanUnloadNow() -> $crate::__private::HRESULT {
                $crate::__private::S_FALSE
            }
        };
    };
}
