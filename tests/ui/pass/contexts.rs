//! The correct forms of the cases about contexts, locks and objects.
use corprof::profiler::Subscriber;
use corprof::{prelude::*, sync::Mutex};

struct Counter(Mutex<Option<usize>>);

#[callbacks]
impl Callbacks for Counter {
    fn app_domain_creation_finished(&self, cx: &mut InCallback<'_>, domain: AppDomainId, _status: Result<()>) {
        let found = cx.app_domain_info(domain).is_ok();
        *self.0.lock(cx) = Some(usize::from(found));
    }

    fn object_allocated(&self, cx: &InNoGc<'_>, object: ObjectId<'_>, class: ClassId) {
        let same = cx.class_of(object) == Ok(class);
        *self.0.lock(cx) = Some(if same { object.as_raw() } else { 0 });
    }

    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        let assembly = cx.module_info(module).ok().and_then(|info| info.assembly);
        let name = assembly.and_then(|assembly| cx.assembly_info(assembly).ok()).map(|info| info.name.len());
        *self.0.lock(cx) = cx.metadata(module).and_then(|metadata| metadata.module_name()).ok().map(|name| name.len()).or(name);
    }
}

fn main() {
    assert!(Counter::EVENTS.contains(corprof::event_mask::Event::ObjectAllocated));
}
