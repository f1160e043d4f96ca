//! Tokens that name nothing, names without end, addresses of nothing: each is an error or an answer, and nothing else.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use corprof::info::IlMapEntry;
use corprof::metadata::MethodDef;
use corprof::metadata::*;
use corprof::prelude::*;

/// Rows that are there and rows that are not.
const ROWS: [u32; 10] = [0, 1, 2, 3, 0x7fff, 0x8000, 0xffff, 0x1_0000, 0xff_fffe, 0xff_ffff];

#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1206", no_export)]
pub(crate) struct Nonsense {
    is_done: AtomicBool,
    answers: AtomicU64,
    errors: AtomicU64,
}

/// Tables that there are, and others.
fn tables() -> impl Iterator<Item = u32> {
    (0..=0x2d).chain([0x6f, 0x70, 0x71, 0x7f, 0x80, 0xff])
}

/// Texts that are not usual names.
fn names() -> [String; 5] {
    [String::new(), ".".into(), "a".repeat(5000), "\u{10ffff}".repeat(1 << 20), "a".repeat(4 << 20)]
}

impl Nonsense {
    fn note<T>(&self, answer: Result<T>) {
        let count = if answer.is_ok() { &self.answers } else { &self.errors };
        count.fetch_add(1, Relaxed);
    }

    fn read(&self, metadata: &MetadataImport<'_>) {
        for table in tables() {
            for raw in ROWS.map(|row| table << 24 | row) {
                self.read_token(metadata, raw);
            }
        }
        for name in names() {
            self.note(metadata.find_type_def(&name, None));
            self.note(metadata.find_type_def(&name, Some(TypeDef::from_raw(0x02ff_ffff))));
            self.note(metadata.find_type_ref(Token::from_raw(0x01ff_ffff), &name));
            self.note(metadata.methods_named(TypeDef::from_raw(0x0200_0002), &name));
            self.note(metadata.find_exported_type(&name, None));
            self.note(metadata.find_exported_type(&name, Some(ExportedType::from_raw(0x27ff_ffff))));
            self.note(metadata.custom_attribute_named(TypeDef::from_raw(0x0200_0002), &name));
        }
    }

    fn read_token(&self, metadata: &MetadataImport<'_>, raw: u32) {
        let token = Token::from_raw(raw);
        metadata.is_valid_token(token);
        self.note(metadata.methods(TypeDef::from_raw(raw)));
        self.note(metadata.methods_named(TypeDef::from_raw(raw), ".ctor"));
        self.note(metadata.method(MethodDef::from_raw(raw)));
        self.note(metadata.fields(TypeDef::from_raw(raw)));
        self.note(metadata.field(FieldDef::from_raw(raw)));
        self.note(metadata.params(MethodDef::from_raw(raw)));
        self.note(metadata.param(ParamDef::from_raw(raw)));
        self.note(metadata.member_refs(token));
        self.note(metadata.member_ref(MemberRef::from_raw(raw)));
        self.note(metadata.method_spec(MethodSpec::from_raw(raw)));
        self.note(metadata.properties(TypeDef::from_raw(raw)));
        self.note(metadata.property(Property::from_raw(raw)));
        self.note(metadata.events(TypeDef::from_raw(raw)));
        self.note(metadata.event(Event::from_raw(raw)));
        self.note(metadata.module_ref(ModuleRef::from_raw(raw)));
        self.note(metadata.pinvoke_map(token));
        self.note(metadata.assembly_identity(Assembly::from_raw(raw)));
        self.note(metadata.assembly_ref(AssemblyRef::from_raw(raw)));
        self.note(metadata.exported_type(ExportedType::from_raw(raw)));
        self.note(metadata.user_string_units(UserString::from_raw(raw)));
        self.note(metadata.signature(StandAloneSignature::from_raw(raw)));
        self.note(metadata.type_def(TypeDef::from_raw(raw)));
        self.note(metadata.enclosing_class(TypeDef::from_raw(raw)));
        self.note(metadata.interface_impls(TypeDef::from_raw(raw)));
        self.note(metadata.interface_impl(InterfaceImpl::from_raw(raw)));
        self.note(metadata.find_type_ref(token, "System.Object"));
        self.note(metadata.find_type_def("Nested", Some(TypeDef::from_raw(raw))));
        self.note(metadata.type_ref(TypeRef::from_raw(raw)));
        self.note(metadata.type_spec(TypeSpec::from_raw(raw)));
        self.note(metadata.custom_attributes(token));
        self.note(metadata.custom_attribute(CustomAttribute::from_raw(raw)));
        self.note(metadata.custom_attribute_named(token, "System.ObsoleteAttribute"));
        self.note(metadata.generic_params(token));
        self.note(metadata.generic_param(GenericParam::from_raw(raw)));
        self.note(metadata.generic_param_constraints(GenericParam::from_raw(raw)));
    }

    fn emit(&self, emit: &MetadataEmit<'_>) {
        for table in tables() {
            for token in ROWS.map(|row| Token::from_raw(table << 24 | row)) {
                self.note(emit.define_type_ref(token, "Nobody.Nothing"));
                self.note(emit.define_member_ref(token, "Nothing", &[0x00, 0x00, 0x01]));
                self.note(emit.define_method_spec(token, &[0x0a, 0x01, 0x0e]));
            }
        }
        for name in names() {
            self.note(emit.define_type_ref(Token::from_raw(0x2300_0001), &name));
            self.note(emit.define_member_ref(Token::from_raw(0x0100_0001), &name, &[]));
            self.note(emit.define_module_ref(&name));
            self.note(emit.define_assembly_ref(&AssemblyIdentity {
                culture: name.clone(),
                public_key: vec![7; name.len()],
                name: name.clone(),
                ..AssemblyIdentity::default()
            }));
            self.note(emit.define_user_string(&name));
        }
        for blob in [&[][..], &[0xff], &[0x1d; 1000], &vec![0x41; 1 << 20]] {
            self.note(emit.define_signature(blob));
            self.note(emit.define_type_spec(blob));
            self.note(emit.define_member_ref(Token::from_raw(0x0100_0001), "Nothing", blob));
            self.note(emit.define_method_spec(Token::from_raw(0x0600_0001), blob));
        }
    }

    fn ask(&self, cx: &mut InCallback<'_>, module: ModuleId, class: ClassId) {
        for table in tables() {
            for raw in ROWS.map(|row| table << 24 | row) {
                self.note(cx.il_function_body(module, MethodDef::from_raw(raw)));
                self.note(cx.function_from_token(module, Token::from_raw(raw)));
                self.note(cx.static_field_info(class, FieldDef::from_raw(raw)));
                self.note(cx.rva_static_address(class, FieldDef::from_raw(raw)));
                self.note(cx.ngen_inliners(module, module, MethodDef::from_raw(raw)));
                self.note(cx.function_from_token_and_type_args(class, MethodDef::from_raw(raw), &[]));
                self.note(cx.class_from_token(module, TypeDef::from_raw(raw), &[]));
                self.note(cx.class_from_token(module, TypeDef::from_raw(raw), &[class; 3]));
            }
        }
        for address in [0, 1, 8, 0xfff, 0x7fff_ffff_f000, usize::MAX - 7, usize::MAX] {
            let Some(address) = cx.code_address(address) else { continue };
            self.note(cx.function_from_ip(address));
            self.note(cx.function_version_from_ip(address));
        }
        for offset in [0, 1, u32::MAX - 1, u32::MAX] {
            self.note(cx.read_in_memory_symbols(module, offset, &mut [0; 64]));
            self.note(cx.read_in_memory_symbols(module, offset, &mut []));
        }
        for name in names().into_iter().chain(["=".into(), "=A".into(), "A=B".into()]) {
            self.note(cx.environment_variable(&name));
            self.note(cx.set_environment_variable("CORPROF_ATTACK", Some(&name)));
            self.note(cx.set_environment_variable(&name, Some("value")));
            self.note(cx.environment_variable(&name));
            self.note(cx.set_environment_variable(&name, None));
            self.note(cx.environment_variable("CORPROF_ATTACK"));
        }
    }

    /// Maps for debuggers that lead out of every body.
    fn map(&self, cx: &mut InCallback<'_>, function: FunctionId) {
        let entry = |old_offset, new_offset| IlMapEntry { old_offset, new_offset, is_accurate: true };
        let far = [entry(0, u32::MAX), entry(u32::MAX, 0), entry(u32::MAX - 1, 7), entry(0, 0)];
        for map in [&far[..], &[], &vec![entry(3, 3); 1 << 16]] {
            for is_first in [true, false] {
                self.note(cx.set_il_instrumented_code_map(function, is_first, map));
            }
        }
    }

    fn attack(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Result<()> {
        self.map(cx, function);
        let info = cx.function_info(function)?;
        let class = info.class.unwrap();
        let core = cx.class_info(cx.class_info(class)?.parent.unwrap())?.module;
        for module in [info.module, core] {
            eprintln!("attacks| read");
            self.read(&cx.metadata(module)?);
            eprintln!("attacks| ask");
            self.ask(cx, module, class);
        }
        eprintln!("attacks| emit");
        self.emit(&cx.metadata_emit(info.module)?);
        eprintln!("attacks| read again");
        self.read(&cx.metadata(info.module)?);
        self.read(&cx.metadata_emit(info.module)?.import()?);
        self.note(cx.apply_meta_data(info.module));
        self.ask(cx, info.module, class);
        Ok(())
    }
}

#[callbacks]
impl Callbacks for Nonsense {
    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        let is_first = || !self.is_done.swap(true, Relaxed);
        if cx.names().function(function).to_string().starts_with("World.Main") && is_first() {
            self.attack(cx, function).unwrap();
        }
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        eprintln!("attacks| answers={} errors={}", self.answers.load(Relaxed), self.errors.load(Relaxed));
    }
}
