//! Objects, fields and chains, read by corprof itself: in callbacks, in rounds of the sampler and in snapshots.

use std::hint::black_box;
use std::sync::{Mutex, OnceLock, PoisonError};

use corprof::heap_dump::{BlockSink, FieldsOf};
use corprof::inlined_frames::InlinedFrames;
use corprof::metadata::{
    AssemblyRef, ExportedType, FieldDef, MemberRef, MetadataImport, MethodDef, MethodSpec, ModuleRef,
    StandAloneSignature, Token, TypeDef, TypeRef, TypeSpec, UserString,
};
use corprof::object_chains::ChainStart;
use corprof::prelude::*;
use corprof::sampler::{Round, SampledFrame};
use corprof::values::{LinkCache, Links, Value};
use fastrand::Rng;

use super::{act, pools};

/// How deep objects are followed.
const DEEPEST: u32 = 4;

/// Reads all of an object, and some objects that it refers to.
pub(super) fn read(cx: &InNoGc<'_>, object: ObjectId<'_>, random: &mut Rng, depth: u32) -> Option<()> {
    let value = cx.value(object).ok()?;
    black_box(value.to_string());
    pools::CLASSES.put(random, value.class());
    let mut referred = Vec::new();
    let names: Vec<_> = value.fields().map(|field| field.name().to_owned()).collect();
    referred.extend(names.iter().filter_map(|name| value.reference(name)));
    black_box((value.string().map(|text| text.as_utf16().len()), value.boxed().map(|boxed| boxed.to_string())));
    for index in (0..5).chain([usize::MAX, random.usize(..), random.usize(0..1 << 20)]) {
        black_box(value.element(index).map(|element| element.to_string()));
    }
    for field in value.fields() {
        read_value(field.value());
    }
    for object in referred.into_iter().take(3) {
        if depth < DEEPEST {
            read(cx, object, random, depth + 1);
        }
    }
    Some(())
}

fn read_value(value: Value<'_>) {
    match value {
        Value::ByRef(place) => _ = black_box(place.value().to_string()),
        Value::Struct(value) => value.fields().for_each(|field| read_value(field.value())),
        Value::String(Some(text)) => _ = black_box(text.as_utf16().iter().map(|&unit| u64::from(unit)).sum::<u64>()),
        other => _ = black_box(other.to_string()),
    }
}

/// Asks for a row by a number that the module may lack, or that another table has.
pub(super) fn read_any_row(metadata: &MetadataImport<'_>, random: &mut Rng) {
    const TABLES: [u32; 20] = [0, 1, 2, 4, 6, 8, 9, 10, 12, 17, 20, 23, 26, 27, 32, 35, 39, 42, 43, 44];
    let table = if random.u32(0..20) == 0 { 0x70 } else { TABLES[random.usize(0..TABLES.len())] };
    let row = if random.u32(0..10) == 0 { random.u32(0..0x100_0000) } else { random.u32(0..200) };
    let raw = table << 24 | row;
    let token = Token::from_raw(raw);
    let class = TypeDef::from_raw(raw);
    let method = MethodDef::from_raw(raw);
    let _ = (metadata.is_valid_token(token), metadata.custom_attributes(token));
    let _ = metadata.custom_attribute_named(token, "System.ObsoleteAttribute");
    for param in metadata.generic_params(token).unwrap_or_default() {
        let _ = (metadata.generic_param(param.token), metadata.generic_param_constraints(param.token));
    }
    let _ = (metadata.type_def(class), metadata.enclosing_class(class), metadata.methods_named(class, ".ctor"));
    for implementation in metadata.interface_impls(class).unwrap_or_default() {
        let _ = metadata.interface_impl(implementation);
    }
    for property in metadata.properties(class).unwrap_or_default() {
        let _ = metadata.property(property);
    }
    for event in metadata.events(class).unwrap_or_default() {
        let _ = metadata.event(event);
    }
    for param in metadata.params(method).unwrap_or_default() {
        let _ = metadata.param(param);
    }
    let _ = (metadata.method(method), metadata.pinvoke_map(token), metadata.field(FieldDef::from_raw(raw)));
    let _ = (metadata.type_ref(TypeRef::from_raw(raw)), metadata.type_spec(TypeSpec::from_raw(raw)));
    let _ = (metadata.member_ref(MemberRef::from_raw(raw)), metadata.method_spec(MethodSpec::from_raw(raw)));
    let _ = (metadata.member_refs(token), metadata.signature(StandAloneSignature::from_raw(raw)));
    let _ = (metadata.user_string(UserString::from_raw(raw)), metadata.module_ref(ModuleRef::from_raw(raw)));
    let _ = (metadata.assembly_ref(AssemblyRef::from_raw(raw)), metadata.exported_type(ExportedType::from_raw(raw)));
    let _ = (metadata.find_type_ref(token, "System.Object"), metadata.find_type_def("Program", Some(class)));
    if random.u32(0..50) == 0 {
        let _ = (metadata.user_strings(), metadata.signatures(), metadata.type_specs(), metadata.method_specs());
        let _ = (metadata.exported_types(), metadata.module_refs(), metadata.module(), metadata.assembly());
    }
}

static LINKS: OnceLock<Links<u32>> = OnceLock::new();
static CACHES: Mutex<Vec<LinkCache<u32>>> = Mutex::new(Vec::new());

/// Follows a chain by whatever was learned. A cache goes from thread to thread.
pub(super) fn follow(cx: &InNoGc<'_>, object: ObjectId<'_>, random: &mut Rng) -> Option<()> {
    let links = LINKS.get()?;
    let known = CACHES.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let mut cache = known.unwrap_or_else(|| links.cache());
    let end = links.follow(cx, &mut cache, object, random.usize(0..1000), |_| act::anywhere(cx, "visit of a chain"));
    CACHES.lock().unwrap_or_else(PoisonError::into_inner).push(cache);
    end.ok().map(drop)
}

/// The name of some field of a class or its base classes.
fn some_field(cx: &InNoGc<'_>, class: ClassId, random: &mut Rng) -> Option<String> {
    let mut names = vec!["none".to_owned()];
    let mut class = Some(class);
    while let Some(info) = class.and_then(|class| cx.class_info(class).ok()) {
        class = info.parent;
        let metadata = cx.metadata(info.module).ok()?;
        let fields = metadata.fields(info.token).unwrap_or_default();
        names.extend(fields.into_iter().filter_map(|field| Some(metadata.field(field).ok()?.name)));
    }
    Some(names.swap_remove(random.usize(0..names.len())))
}

pub(super) fn learn(cx: &mut InCallback<'_>, random: &mut Rng) -> Option<()> {
    if LINKS.get().is_none() {
        let _ = LINKS.set(Links::new(cx).ok()?);
    }
    let links = LINKS.get()?;
    let unknown = links.take_unknown(cx);
    for class in unknown.into_iter().chain(pools::CLASSES.pick(random)) {
        let name = some_field(cx, class, random)?;
        let _ = links.learn(cx, class, random.u32(..), &[name.as_str()]);
    }
    Some(())
}

/// The addresses of static fields of a class, and of its thread-static ones of any thread.
pub(super) fn statics(cx: &InNoGc<'_>, random: &mut Rng) -> Option<()> {
    let class = pools::CLASSES.pick(random)?;
    let domain = pools::APP_DOMAINS.pick(random)?;
    let info = cx.class_info(class).ok()?;
    for field in cx.metadata(info.module).ok()?.fields(info.token).ok()? {
        let _ = (cx.static_field_info(class, field), cx.app_domain_static_address(class, field, domain));
        let _ = (cx.rva_static_address(class, field), cx.thread_static_address(class, field, domain, None));
        let _ = cx.thread_static_address(class, field, domain, pools::THREADS.pick(random));
    }
    Some(())
}

/// Asks a round for locks, and for chains from anywhere by any fields.
pub(super) fn ask_round(round: &mut Round<'_, '_>, random: &mut Rng) {
    if random.u32(0..20) == 0 {
        black_box(round.lock_waits().map(|locks| locks.deadlocks().len()).ok());
    }
    if random.u32(0..20) > 0 {
        return;
    }
    let classes: Vec<_> = (0..4).filter_map(|_| pools::CLASSES.pick(random)).collect();
    let Some(&class) = classes.first() else { return };
    let mut starts = Vec::new();
    for sample in round.samples().take(20) {
        let frame = random.usize(0..8);
        let outermost = frame + random.usize(0..3);
        let offset = [0, 8, 16, usize::MAX][random.usize(0..4)];
        let class = classes.get(random.usize(0..4)).copied().unwrap_or(class);
        let mark = if random.bool() { (4, (class.as_raw() >> 32) as u32) } else { (8, 0) };
        starts.push(ChainStart { sample, frame, outermost, class, offset, mark });
    }
    const FIELDS: [&str; 4] = ["_next", "_items", "m_stateObject", "_value"];
    let chains = round.object_chains(&starts, |cx, class| {
        pools::CLASSES.put(random, class);
        act::in_no_gc(cx, "learning of a chain", None);
        ((), FIELDS.get(random.usize(0..5)).copied())
    });
    black_box(chains.map(|chains| chains.len()).ok());
}

/// Inlined methods, found in rounds of other samplers too, and asked about with frames that belong to each other or not.
pub(super) fn find_inlined(round: &mut Round<'_, '_>, random: &mut Rng) {
    static KEPT: Mutex<Vec<(InlinedFrames, Vec<SampledFrame>)>> = Mutex::new(Vec::new());
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let (mut inlined, mut frames) = kept.unwrap_or_default();
    if random.u32(0..40) == 0 {
        inlined.learn_all(round);
    } else {
        inlined.learn(round);
    }
    let mut seen = Vec::new();
    for sample in round.samples().take(20) {
        seen.extend_from_slice(sample.frames());
        black_box((
            sample.weight(),
            sample.ticks(),
            sample.is_waiting(),
            sample.is_truncated(),
            sample.is_incomplete(),
        ));
    }
    for pair in seen.windows(2).chain(frames.windows(2)) {
        if let [callee, caller] = pair {
            black_box(inlined.between(round.cx(), caller, callee).len());
            black_box(round.native_name(caller.ip).or_else(|| Some(round.native_function(callee.ip)?.name)));
        }
    }
    if random.u32(0..4) == 0 {
        frames = seen;
    }
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).push((inlined, frames));
}

/// Some fields of some classes.
pub(super) fn some_fields(cx: &InNoGc<'_>, random: &mut Rng) -> Vec<FieldsOf> {
    let mut all = Vec::new();
    for _ in 0..random.usize(0..4) {
        let Some((module, class)) = pools::TYPES.pick(random) else { continue };
        let mut fields = FieldsOf::new(module, class);
        let names = cx.metadata(module).and_then(|metadata| {
            let fields = metadata.fields(class)?;
            fields.into_iter().map(|field| Ok(metadata.field(field)?.name)).collect::<Result<Vec<_>>>()
        });
        for name in names.unwrap_or_default() {
            let added = match random.u32(0..3) {
                0 => fields.clone().field(cx, &name),
                1 => fields.clone().behind(cx, &name, [0, 8, usize::MAX][random.usize(0..3)]),
                _ => fields.clone().first_of(cx, &name),
            };
            fields = added.unwrap_or(fields);
        }
        all.push(fields);
    }
    all
}

/// Takes some blocks of a snapshot, and acts there: the application stands still.
pub(super) struct Sink {
    pub(super) info: Info,
    pub(super) left: u32,
}

impl Sink {
    fn act(&mut self, place: &'static str) -> std::io::Result<()> {
        act::anywhere(&self.info, place);
        self.left = self.left.saturating_sub(1);
        if self.left > 0 { Ok(()) } else { Err(std::io::ErrorKind::Other.into()) }
    }
}

impl BlockSink for Sink {
    fn block(&mut self, _event: u16, _payload: &[u8]) -> std::io::Result<()> {
        self.act("block of a snapshot")
    }

    fn fields(&mut self, _of: usize, _object: u64, values: &[u64]) -> std::io::Result<()> {
        black_box(values.iter().sum::<u64>());
        Ok(())
    }

    fn end(&mut self) -> std::io::Result<()> {
        self.act("end of a snapshot")
    }
}
