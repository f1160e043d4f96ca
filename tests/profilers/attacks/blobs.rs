//! Signatures made up: what is refused is counted, and the application survives the rest.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corprof::edit::CallCounter;
use corprof::metadata::signature::{ArrayShape, CallingConvention, MethodSignature, Primitive, Type};
use corprof::metadata::{MetadataEmit, Token, TypeDefOrRef};
use corprof::prelude::*;
use fastrand::Rng;

static CALLS: CallCounter = CallCounter::new();

/// Gives each method of `Empty` random local variables, and defines random signatures beside them.
#[derive(Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1231", no_export)]
pub(crate) struct Blobs {
    random: Mutex<Rng>,
    edited: AtomicU64,
    refused: AtomicU64,
    defined: AtomicU64,
}

impl Default for Blobs {
    fn default() -> Self {
        let seed = std::env::var("ATTACKS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_default();
        eprintln!("attacks| ATTACKS_SEED={seed}");
        let random = Mutex::new(Rng::with_seed(seed));
        Self { random, edited: AtomicU64::new(0), refused: AtomicU64::new(0), defined: AtomicU64::new(0) }
    }
}

/// A type that may be nonsense; `depth` is how deep it may still be.
fn some_type(random: &mut Rng, depth: u32) -> Type {
    const PRIMITIVES: [Primitive; 8] = [
        Primitive::Bool,
        Primitive::Int32,
        Primitive::Int64,
        Primitive::Float64,
        Primitive::String,
        Primitive::Object,
        Primitive::NativeInt,
        Primitive::TypedRef,
    ];
    let inner = |random: &mut Rng| Box::new(some_type(random, depth.saturating_sub(1)));
    match random.u32(0..if depth == 0 { 6 } else { 15 }) {
        0 | 1 => Type::Primitive(PRIMITIVES[random.usize(0..PRIMITIVES.len())]),
        2 => Type::Class(some_token(random)),
        3 => Type::ValueType(some_token(random)),
        4 => Type::MethodParameter(random.u32(0..3)),
        5 => Type::TypeParameter(random.u32(0..3)),
        6 => Type::Pointer(inner(random)),
        7 => Type::ByRef(inner(random)),
        8 | 9 => Type::SzArray(inner(random)),
        10 => {
            let shape = ArrayShape { rank: random.u32(1..33), sizes: Vec::new(), lower_bounds: Vec::new() };
            Type::Array(inner(random), shape)
        }
        11 | 12 => Type::Generic {
            value_type: random.bool(),
            definition: some_token(random),
            arguments: (0..random.usize(1..4)).map(|_| some_type(random, depth - 1)).collect(),
        },
        13 => Type::FunctionPointer(Box::new(MethodSignature {
            convention: CallingConvention::Default,
            has_this: random.bool(),
            explicit_this: false,
            generic_parameters: 0,
            return_type: some_type(random, depth - 1),
            parameters: (0..random.usize(0..3)).map(|_| some_type(random, depth - 1)).collect(),
            sentinel: None,
        })),
        _ => match random.u32(0..3) {
            0 => Type::Internal(random.usize(..)),
            1 => Type::Pinned(inner(random)),
            _ => Type::Modified { required: random.bool(), modifier: some_token(random), inner: inner(random) },
        },
    }
}

/// A definition, a reference or a spec, which the module may lack.
fn some_token(random: &mut Rng) -> TypeDefOrRef {
    let table = [0x01, 0x02, 0x1b][random.usize(0..3)];
    let row = if random.u32(0..20) == 0 { random.u32(0..0x100_0000) } else { random.u32(1..24) };
    TypeDefOrRef::from_token(Token::from_raw(table << 24 | row)).unwrap()
}

/// Hands over random bytes, and whole signatures with one byte changed; returns how many were taken.
fn define_nonsense(random: &mut Rng, emit: &MetadataEmit<'_>) -> u64 {
    let mut defined = 0;
    for _ in 0..20 {
        let mut blob: Vec<u8> = match some_type(random, 4).encode() {
            Ok(blob) if random.bool() => blob,
            _ => (0..random.usize(0..12)).map(|_| random.u8(0..0x46)).collect(),
        };
        if let Some(at) = (!blob.is_empty()).then(|| random.usize(0..blob.len())) {
            blob[at] = random.u8(..);
        }
        defined += u64::from(emit.define_type_spec(&blob).is_ok());
        defined += u64::from(emit.define_signature(&blob).is_ok());
        let parent = some_token(random).token();
        defined += u64::from(emit.define_member_ref(parent, "Nonsense", &blob).is_ok());
        defined += u64::from(emit.define_method_spec(parent, &blob).is_ok());
    }
    defined
}

#[callbacks]
impl Callbacks for Blobs {
    fn jit_compilation_started(&self, cx: &mut InTriggers<'_>, function: FunctionId, _is_safe_to_block: bool) {
        if !cx.names().function(function).starts_with("Empty.M") {
            return;
        }
        let edited = cx.edit_once(function, |edit| {
            let mut random = self.random.lock().unwrap();
            self.defined.fetch_add(define_nonsense(&mut random, edit.emit()), Relaxed);
            for _ in 0..random.usize(1..4) {
                edit.add_local(some_type(&mut random, 6))?;
            }
            edit.count_calls(&CALLS)
        });
        let count = if edited.is_ok() { &self.edited } else { &self.refused };
        count.fetch_add(1, Relaxed);
    }

    fn shutdown(&self, _cx: &mut InTriggers<'_>) {
        let [edited, refused, defined] = [&self.edited, &self.refused, &self.defined].map(|count| count.load(Relaxed));
        eprintln!("attacks| edited={edited} refused={refused} defined={defined} ran={}", CALLS.get());
    }
}
