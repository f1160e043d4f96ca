//! Managed threads: a created one is a real thread of the system, others become managed when they first make a
//! callback.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::thread::JoinHandle;

use crate::id::ThreadId;
use crate::system;

use super::clr::{FakeClr, make, misuse, thread_id};
use super::here;
use super::runtime::lock;
use super::world::Thread;

/// A thread of the system that waits for work.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: mpsc::Sender<Job>,
    thread: JoinHandle<()>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Worker {
    fn start() -> Self {
        let (jobs, todo) = mpsc::channel::<Job>();
        let thread = std::thread::spawn(move || todo.iter().for_each(|job| job()));
        Self { jobs, thread }
    }

    pub(super) fn end(self) {
        drop(self.jobs);
        // Jobs let no panic out, so the thread's result says nothing.
        let _ = self.thread.join();
    }
}

/// A job for a worker, on which the caller waits. Fields are dropped in this order: when the caller sees that no answer
/// will come, the work has been dropped.
struct Order<F, R> {
    work: F,
    answer: mpsc::Sender<std::thread::Result<R>>,
}

impl<F: FnOnce() -> R, R> Order<F, R> {
    fn carry_out(self) {
        let Self { work, answer } = self;
        let result = catch_unwind(AssertUnwindSafe(work));
        // The caller waits, so the receiver exists.
        let _ = answer.send(result);
    }
}

impl FakeClr {
    /// Starts a managed thread, and waits until it has been reported: `ThreadCreated` and `ThreadAssignedToOSThread`,
    /// on itself. It is idle until [`on_thread`](Self::on_thread) gives it work.
    pub fn create_thread(&self) -> ThreadId {
        let raw = self.runtime.world_mut().new_id();
        lock(&self.workers).insert(raw, Worker::start());
        let thread = thread_id(raw);
        self.on_thread(thread, || {
            self.become_thread(raw);
            self.report_thread(thread);
        });
        thread
    }

    /// Runs `work` on a thread made by [`create_thread`](Self::create_thread), and waits for it. A panic in it
    /// continues in the caller.
    ///
    /// # Panics
    /// If no such thread exists, or it was destroyed. Do not call it on the thread itself, which would wait for itself.
    #[track_caller]
    pub fn on_thread<R: Send>(&self, thread: ThreadId, work: impl FnOnce() -> R + Send) -> R {
        if here::thread(self.runtime.id) == thread.as_raw() {
            return work();
        }
        let jobs = match lock(&self.workers).get(&thread.as_raw()) {
            Some(worker) => worker.jobs.clone(),
            None => misuse(format_args!("{thread:?} is not a thread that create_thread made and that is still there")),
        };
        let (answer, result) = mpsc::channel();
        let order = Order { work, answer };
        let job: Box<dyn FnOnce() + Send + '_> = Box::new(move || order.carry_out());
        // SAFETY: only the lifetime changes. The job borrows from this call, which does not return before the job was
        // executed or dropped: `recv` below waits until the answer's sender has sent, after the work was consumed, or
        // was dropped, after the work was.
        let job = unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Job>(job) };
        if jobs.send(job).is_err() {
            misuse(format_args!("{thread:?} has ended"));
        }
        match result.recv() {
            Ok(Ok(answer)) => answer,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => misuse(format_args!("{thread:?} has ended")),
        }
    }

    /// Gives a thread a name: `ThreadNameChanged`, on the calling thread.
    pub fn name_thread(&self, thread: ThreadId, name: &str) {
        self.current_thread();
        let units: Vec<u16> = name.encode_utf16().collect();
        let raw = thread.as_raw();
        let count = units.len() as u32;
        let start = units.as_ptr();
        make!(self, ThreadNameChanged, |callback| callback.ThreadNameChanged(raw, count, start));
    }

    /// Ends a managed thread: `ThreadDestroyed`, on itself. A thread that was not made by
    /// [`create_thread`](Self::create_thread) goes on as a native thread.
    ///
    /// # Panics
    /// If the thread does not exist, or is another thread of the test's own: only that thread can end itself.
    #[track_caller]
    pub fn destroy_thread(&self, thread: ThreadId) {
        let raw = thread.as_raw();
        let end = || {
            make!(self, ThreadDestroyed, |callback| callback.ThreadDestroyed(raw));
            self.runtime.world_mut().threads.remove(&raw);
            here::carry(self.runtime.id, 0);
        };
        if here::thread(self.runtime.id) == raw {
            end();
        } else {
            self.on_thread(thread, end);
        }
        let worker = lock(&self.workers).remove(&raw);
        // A thread that ends itself cannot wait for itself.
        if let Some(worker) = worker
            && worker.thread.thread().id() != std::thread::current().id()
        {
            worker.end();
        }
    }

    /// The managed thread that the calling thread carries. A native thread becomes a managed one, as in a runtime when
    /// native code calls managed code: `ThreadCreated` and `ThreadAssignedToOSThread`.
    pub fn current_thread(&self) -> ThreadId {
        let raw = here::thread(self.runtime.id);
        if raw != 0 {
            return thread_id(raw);
        }
        let raw = self.runtime.world_mut().new_id();
        self.become_thread(raw);
        let thread = thread_id(raw);
        self.report_thread(thread);
        thread
    }

    fn become_thread(&self, raw: usize) {
        self.runtime.world_mut().threads.insert(raw, Thread { os_id: system::os_thread_id(), ..Thread::default() });
        here::carry(self.runtime.id, raw);
    }

    pub(super) fn report_thread(&self, thread: ThreadId) {
        let raw = thread.as_raw();
        let os_id = self.runtime.world().threads.get(&raw).map_or(0, |thread| thread.os_id);
        make!(self, ThreadCreated, |callback| callback.ThreadCreated(raw));
        make!(self, ThreadAssignedToOsThread, |callback| callback.ThreadAssignedToOSThread(raw, os_id));
    }
}
