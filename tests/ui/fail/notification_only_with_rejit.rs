use corprof::metadata::MethodDef;
use corprof::prelude::*;

#[derive(Default, Profiler)]
#[profiler(clsid = "0D4CBE4C-6E6F-4B6C-9E4E-3D3E5C0D1F62", notification_only)]
struct Beside;

#[callbacks]
impl Callbacks for Beside {
    fn rejit_error(
        &self,
        _cx: &mut InCallback<'_>,
        _module: ModuleId,
        _method: MethodDef,
        _function: Option<FunctionId>,
        _status: Result<()>,
    ) {
    }
}

fn main() {}
