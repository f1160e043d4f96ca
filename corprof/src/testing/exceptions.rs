//! Exceptions: throws them, searches for a catcher, and unwinds.

use crate::id::ClassId;

use super::clr::{FakeClr, make};
use super::contract::Release;
use super::spec::{FakeObject, Frame};

/// The release that holds a thrown exception by one handle less.
const ONE_HANDLE: Release = Release(11, 0);

impl FakeClr {
    /// Throws an exception of a class through the frames of a stack, beginning with the throwing frame, up to the first
    /// that catches; without a catching frame only the search takes place, because the process would end.
    ///
    /// First pass, frame by frame: `ExceptionSearchFunctionEnter`, the filter, `ExceptionSearchCatcherFound`,
    /// `ExceptionSearchFunctionLeave`. Second pass: `ExceptionUnwindFunctionEnter`, the finally block,
    /// `ExceptionUnwindFunctionLeave`; in the catching frame, `ExceptionCatcherEnter` and `ExceptionCatcherLeave`
    /// replace the end of the unwinding. As seen on .NET 8, two handles hold the exception meanwhile, on .NET 11 one:
    /// `HandleCreated` before all other callbacks, `HandleDestroyed` after them.
    ///
    /// # Panics
    /// If there is no such class.
    #[track_caller]
    pub fn throw(&self, class: ClassId, frames: &[Frame]) -> FakeObject {
        let exception = self.allocate(class);
        let count = if self.runtime.release < ONE_HANDLE { 2 } else { 1 };
        let handles: Vec<usize> = (0..count).map(|_| self.runtime.world_mut().new_id()).collect();
        for &handle in &handles {
            self.create_handle(handle, exception);
        }
        make!(self, ExceptionThrown, |callback| callback.ExceptionThrown(self.address_of(exception)));
        for frame in frames {
            let function = frame.function.as_raw();
            make!(self, ExceptionSearchFunctionEnter, |callback| callback.ExceptionSearchFunctionEnter(function));
            if frame.filters {
                make!(self, ExceptionSearchFilterEnter, |callback| callback.ExceptionSearchFilterEnter(function));
                make!(self, ExceptionSearchFilterLeave, |callback| callback.ExceptionSearchFilterLeave());
            }
            if frame.catches {
                make!(self, ExceptionSearchCatcherFound, |callback| callback.ExceptionSearchCatcherFound(function));
            }
            make!(self, ExceptionSearchFunctionLeave, |callback| callback.ExceptionSearchFunctionLeave());
            if frame.catches {
                break;
            }
        }
        if !frames.iter().any(|frame| frame.catches) {
            return exception;
        }
        for frame in frames {
            let function = frame.function.as_raw();
            make!(self, ExceptionUnwindFunctionEnter, |callback| callback.ExceptionUnwindFunctionEnter(function));
            if frame.finally {
                make!(self, ExceptionUnwindFinallyEnter, |callback| callback.ExceptionUnwindFinallyEnter(function));
                make!(self, ExceptionUnwindFinallyLeave, |callback| callback.ExceptionUnwindFinallyLeave());
            }
            if frame.catches {
                make!(self, ExceptionCatcherEnter, |callback| callback
                    .ExceptionCatcherEnter(function, self.address_of(exception)));
                make!(self, ExceptionCatcherLeave, |callback| callback.ExceptionCatcherLeave());
                break;
            }
            make!(self, ExceptionUnwindFunctionLeave, |callback| callback.ExceptionUnwindFunctionLeave());
        }
        for handle in handles {
            self.destroy_handle(handle);
        }
        exception
    }
}
