//! Guests written in the text format: an honest plugin, with one place of it replaced.
//!
//! The honest one asks for everything and passes every event. What is put into `process` runs only in the calls whose
//! sequence is [`GUILTY`]: so the same plugin shows what it does and that its lane goes on. What stands in the other
//! functions runs in each of their calls.
//!
//! Memory: results and what they point to below 0x1000, the reply that passes at 0x4000, [`DATA`], and from [`HEAP`]
//! on what the host hands over.

use dovetail_sandbox::Grants;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// The sequence of the call in which a guest does what it should not.
pub(crate) const GUILTY: u64 = 13;
/// Where the bytes of [`Guest::reply`] lie.
const DATA: u32 = 0x1_0000;
const HEAP: u32 = 0x10_0000;

pub(crate) struct Guest {
    form: Form,
    wit: (&'static str, &'static str),
    strings: StringEncoding,
    memory_pages: u32,
    imports: String,
    items: String,
    data: Vec<(u32, Vec<u8>)>,
    describe: String,
    init: String,
    init_parameters: &'static str,
    on_relation: String,
    process: String,
    every_call: String,
    realloc: String,
    grants: Grants,
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Typed,
    Packed,
}

/// A guest that does this, in the text format, in the guilty call of `process`. `$frame` and `$length` are its input;
/// `$a`, `$b` and `$wide` are free.
pub(crate) fn process(code: &str) -> Guest {
    Guest { process: code.into(), ..Guest::honest(Form::Packed) }
}

/// The same in the typed form.
pub(crate) fn typed(code: &str) -> Guest {
    Guest { process: code.into(), ..Guest::honest(Form::Typed) }
}

/// A guest whose reply, in the guilty call, is this frame.
pub(crate) fn reply(frame: &[u8]) -> Guest {
    process(&format!("(return (call $ok (i32.const {DATA}) (i32.const {})))", frame.len()))
        .data(DATA, frame)
}

/// A guest in the typed form whose reply, in the guilty call, is this memory, taken for so many outcomes.
pub(crate) fn outcomes(memory: &[u8], count: u32) -> Guest {
    typed(&format!("(return (call $ok (i32.const {DATA}) (i32.const {count})))")).data(DATA, memory)
}

/// An honest guest, to be spoiled.
pub(crate) fn honest() -> Guest {
    Guest::honest(Form::Packed)
}

impl Guest {
    fn honest(form: Form) -> Self {
        Self {
            form,
            wit: ("", ""),
            strings: StringEncoding::UTF8,
            memory_pages: 32,
            imports: String::new(),
            items: String::new(),
            data: Vec::new(),
            describe: String::new(),
            init: String::new(),
            init_parameters: "i32 i32 i32 i32",
            on_relation: String::new(),
            process: String::new(),
            every_call: String::new(),
            realloc: String::new(),
            grants: Grants::all_rows(),
        }
    }

    /// Imports a function of an interface; `signature` is that of the lowered core function.
    pub(crate) fn import(mut self, interface: &str, name: &str, signature: &str) -> Self {
        self.imports +=
            &format!("(import \"{interface}\" \"{name}\" (func $\"{name}\" {signature}))\n");
        self
    }

    /// Items of the module beside the honest ones: functions, tables, exports.
    pub(crate) fn items(self, items: &str) -> Self {
        Self { items: items.into(), ..self }
    }

    pub(crate) fn data(mut self, at: u32, bytes: &[u8]) -> Self {
        self.data.push((at, bytes.to_owned()));
        self
    }

    /// Replaces what the guilty call does.
    pub(crate) fn process(self, code: &str) -> Self {
        Self { process: code.into(), ..self }
    }

    /// Does this in every call, in the packed form.
    pub(crate) fn every_call(self, code: &str) -> Self {
        Self { every_call: code.into(), ..self }
    }

    pub(crate) fn describe(self, code: &str) -> Self {
        Self { describe: code.into(), ..self }
    }

    pub(crate) fn init(self, code: &str) -> Self {
        Self { init: code.into(), ..self }
    }

    /// The parameters of the core function `init`, where the interface is another.
    pub(crate) fn init_takes(self, init_parameters: &'static str) -> Self {
        Self { init_parameters, ..self }
    }

    pub(crate) fn on_relation(self, code: &str) -> Self {
        Self { on_relation: code.into(), ..self }
    }

    /// Runs before the host gets memory for what it hands over; `$size` is how much.
    pub(crate) fn realloc(self, code: &str) -> Self {
        Self { realloc: code.into(), ..self }
    }

    pub(crate) fn memory_pages(self, memory_pages: u32) -> Self {
        Self { memory_pages, ..self }
    }

    pub(crate) fn utf16(self) -> Self {
        Self { strings: StringEncoding::UTF16, ..self }
    }

    /// Built against an interface in which this text is replaced.
    pub(crate) fn against(self, text: &'static str, instead: &'static str) -> Self {
        Self { wit: (text, instead), ..self }
    }

    pub(crate) fn granted(self, grants: Grants) -> Self {
        Self { grants, ..self }
    }

    pub(crate) fn grants(&self) -> Grants {
        self.grants.clone()
    }

    pub(crate) fn build(&self) -> Vec<u8> {
        let text = self.module();
        let mut module = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let mut resolve = Resolve::default();
        let plugin = concat!(
            include_str!("../../../../wit/0.1.0/types.wit"),
            include_str!("../../../../wit/0.1.0/plugin.wit")
        );
        // Two files of one package: the second heading goes.
        let heading = "package dovetail:plugin@0.1.0;";
        let plugin =
            format!("{heading}{}", plugin.replace(heading, "")).replace(self.wit.0, self.wit.1);
        resolve.push_str("plugin.wit", &plugin).expect("the interface");
        let worlds = resolve.push_str("worlds.wit", include_str!("worlds.wit"));
        let worlds = worlds.expect("the worlds of this suite");
        let name = if self.form == Form::Typed { "typed" } else { "packed" };
        let world = resolve.select_world(&[worlds], Some(name)).expect("is there");
        embed_component_metadata(&mut module, &resolve, world, self.strings).expect("embeds");
        let mut encoder = ComponentEncoder::default();
        encoder.module(&module).and_then(|encoder| encoder.encode()).expect("a component")
    }

    fn module(&self) -> String {
        let Self {
            imports,
            items,
            describe,
            init,
            init_parameters,
            on_relation,
            realloc,
            memory_pages,
            ..
        } = self;
        let data: String = self.data.iter().map(|(at, bytes)| segment(*at, bytes)).collect();
        let descriptor = descriptor();
        let process = self.process_function();
        let heap = self.heap();
        let parameters = |count| "i32 ".repeat(count);
        let eight = parameters(8);
        format!(
            r#"(module
              {imports}
              (memory (export "memory") {memory_pages})
              (global $top (mut i32) (i32.const {heap}))
              {descriptor}
              {data}
              {items}
              (func (export "cabi_realloc")
                (param i32 i32) (param $align i32) (param $size i32) (result i32)
                (local $at i32)
                {realloc}
                (local.set $at (i32.and
                  (i32.add (global.get $top) (i32.sub (local.get $align) (i32.const 1)))
                  (i32.sub (i32.const 0) (local.get $align))))
                (global.set $top (i32.add (local.get $at) (local.get $size)))
                (local.get $at))
              (func $ok (param $pointer i32) (param $length i32) (result i32)
                (i32.store (i32.const 0x300) (i32.const 0))
                (i32.store (i32.const 0x304) (local.get $pointer))
                (i32.store (i32.const 0x308) (local.get $length))
                (i32.const 0x300))
              (func (export "dovetail:plugin/lifecycle@0.1.0#describe") (param i32 i32) (result i32)
                {describe}
                (i32.const 0x100))
              (func (export "dovetail:plugin/lifecycle@0.1.0#init") (param {init_parameters}) (result i32)
                {init}
                (i32.const 0x200))
              (func (export "dovetail:plugin/lifecycle@0.1.0#on-relation") (param {eight}) (result i32)
                {on_relation}
                (i32.const 0x200))
              {process})"#
        )
    }

    /// Behind the guest's data.
    fn heap(&self) -> u32 {
        let ends = self.data.iter().map(|(at, bytes)| *at as usize + bytes.len());
        let end = ends.max().unwrap_or_default().max(HEAP as usize).next_multiple_of(16);
        u32::try_from(end).expect("within the memory")
    }

    fn process_function(&self) -> String {
        let (attack, every_call, heap) = (&self.process, &self.every_call, self.heap());
        match self.form {
            Form::Packed => format!(
                r#"(func (export "dovetail:plugin/packed@0.1.0#process")
                  (param $frame i32) (param $length i32) (result i32)
                  (local $a i32) (local $b i32) (local $wide i64)
                  (global.set $top (i32.const {heap}))
                  (if (i64.eq (i64.load offset=24 (local.get $frame)) (i64.const {GUILTY}))
                    (then {attack}))
                  {every_call}
                  (i32.store (i32.const 0x4000) (i32.const 0x52564F44))
                  (i32.store (i32.const 0x4004) (i32.const 1))
                  (i32.store (i32.const 0x4008) (i32.load offset=8 (local.get $frame)))
                  (call $ok (i32.const 0x4000)
                    (i32.add (i32.const 32)
                      (i32.mul (i32.load offset=8 (local.get $frame)) (i32.const 12)))))"#
            ),
            Form::Typed => format!(
                r#"(func (export "dovetail:plugin/typed@0.1.0#process")
                  (param $sequence i64) (param $batch i32) (param $count i32) (result i32)
                  (local $a i32) (local $b i32) (local $wide i64)
                  (global.set $top (i32.const {heap}))
                  (if (i64.eq (local.get $sequence) (i64.const {GUILTY})) (then {attack}))
                  (call $ok (i32.const 0x4000) (local.get $count)))"#
            ),
        }
    }
}

/// What the honest guest's `describe` gives: every operation and column of every table.
fn descriptor() -> String {
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    [
        segment(0x100, &words(&[0, 0x1A0, 7, 0x1B0, 1, 0x140, 1])),
        segment(0x140, &words(&[0x180, 1, 0x190, 6, 0, 0, 0, 0])),
        segment(0x180, &words(&[0x1B8, 1])),
        segment(0x190, &[0, 1, 2, 3, 4, 5]),
        segment(0x1A0, b"hostile"),
        segment(0x1B0, b"1"),
        segment(0x1B8, b"*"),
    ]
    .concat()
}

fn segment(at: u32, bytes: &[u8]) -> String {
    let escaped: String = bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
    format!("(data (i32.const {at}) \"{escaped}\")\n")
}
