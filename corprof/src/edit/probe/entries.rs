//! Where calls at the beginning of a method arrive: one function for each number of addresses.

/// What compiled code calls when a method begins.
pub(crate) trait Entered {
    /// The method begins.
    ///
    /// # Safety
    /// Compiled code of the method calls it, without a transition. `number` is one of this type's, and the addresses
    /// are what the inserted code passes for it.
    unsafe fn entered<const N: usize>(number: i64, places: [usize; N]);
}

macro_rules! entries {
    ($($count:literal $name:ident ($($place:ident)*);)*) => {
        $(
            /// # Safety
            /// As [`Entered::entered`].
            #[allow(clippy::too_many_arguments, reason = "one for each argument of the method")]
            unsafe extern "C" fn $name<E: Entered>(number: i64 $(, $place: usize)*) {
                // SAFETY: the caller's promise.
                unsafe { E::entered::<$count>(number, [$($place),*]) }
            }
        )*

        /// The function that compiled code calls with a number and so many addresses.
        pub(crate) fn address_of_entry<E: Entered>(addresses: usize) -> Option<i64> {
            let function = match addresses {
                $($count => $name::<E> as *const (),)*
                _ => return None,
            };
            Some(function.expose_provenance() as i64)
        }
    };
}

entries! {
    0 enter_0 ();
    1 enter_1 (a);
    2 enter_2 (a b);
    3 enter_3 (a b c);
    4 enter_4 (a b c d);
    5 enter_5 (a b c d e);
    6 enter_6 (a b c d e f);
    7 enter_7 (a b c d e f g);
    8 enter_8 (a b c d e f g h);
    9 enter_9 (a b c d e f g h i);
    10 enter_10 (a b c d e f g h i j);
    11 enter_11 (a b c d e f g h i j k);
    12 enter_12 (a b c d e f g h i j k l);
    13 enter_13 (a b c d e f g h i j k l m);
    14 enter_14 (a b c d e f g h i j k l m n);
    15 enter_15 (a b c d e f g h i j k l m n o);
    16 enter_16 (a b c d e f g h i j k l m n o p);
    17 enter_17 (a b c d e f g h i j k l m n o p q);
}
