use corprof::prelude::*;

#[derive(Default, Profiler)]
#[profiler(clsid = "0D4CBE4C-6E6F-4B6C-9E4E-3D3E5C0D1F61")]
struct Both;

#[callbacks]
impl Callbacks for Both {
    fn initialize_for_attach(_cx: &mut InAttach<'_>, _data: &[u8]) -> Result<Self, BoxError> {
        Ok(Self)
    }
    fn object_allocated(&self, _cx: &InNoGc<'_>, _object: ObjectId<'_>, _class: ClassId) {}
}

fn main() {}
