//! `export!`: what the runtime looks for in a library.

/// Exports profilers from a library: `corprof::export!(First, Second);`
///
/// [`#[derive(Profiler)]`](derive@crate::Profiler) does this by itself for the one profiler that a library usually has. A
/// library with several says `#[profiler(…, no_export)]` on each and exports them all in one place. Two exports in one library
/// are an error about a symbol whose name says this.
#[macro_export]
macro_rules! export {
    ($($profiler:ty),+ $(,)?) => {
        const _: () = {
            $crate::__private::assert_distinct(&[$($crate::__private::ClassEntry::of::<$profiler>()),+]);

            /// The compiler's error about a second one is where a second export is noticed, so its name says what to do. It
            /// comes first in the alphabet, as only the first symbol that is there twice is reported.
            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals, reason = "it is a sentence")]
            static A_LIBRARY_EXPORTS_ONCE__say_no_export_in_each_derive__and_list_all_profilers_in_one_corprof_export: ::core::primitive::u8 = 0;

            /// Called by the runtime to get at a profiler.
            ///
            /// # Safety
            /// The pointers are as COM has it, or null.
            #[unsafe(no_mangle)]
            unsafe extern "system" fn DllGetClassObject(
                clsid: *const $crate::Guid,
                iid: *const $crate::Guid,
                out: *mut *mut ::core::ffi::c_void,
            ) -> $crate::__private::HRESULT {
                // SAFETY: passed on as they came.
                unsafe {
                    $crate::__private::dll_get_class_object(
                        &[$($crate::__private::ClassEntry::of::<$profiler>()),+],
                        clsid,
                        iid,
                        out,
                    )
                }
            }

            /// Called by the runtime to learn whether the library may be unloaded: never, as code of it may be running.
            #[unsafe(no_mangle)]
            extern "system" fn DllCanUnloadNow() -> $crate::__private::HRESULT {
                $crate::__private::S_FALSE
            }
        };
    };
}
