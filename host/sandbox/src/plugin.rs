//! From a file's bytes to a plugin that can be instantiated.
//!
//! Whatever the bytes are, loading ends in a plugin or in one sentence for its author. The checks stand in the order of
//! their cost; the guest's own code runs last, in `describe`, on an instance with the limits of any other.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use dovetail_core::change::Operation;
use dovetail_core::schema::Relation;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, HasSelf, InstancePre, Linker};

use crate::bindings::dovetail::plugin::{logging, types};
use crate::bindings::exports::dovetail::plugin::{lifecycle, typed};
use crate::cache::{ComponentDigest, deserialize, digest, hex};
use crate::engine::{Sandbox, Ticker};
use crate::error::{CallError, Refusal};
use crate::grants::Grants;
use crate::host::{Given, Host};
use crate::inspection::Import;
use crate::instance::Instance;
use crate::interest::{Descriptor, Interest, View};
use crate::limits::Limits;
use crate::survey::survey;
use crate::wasi;

/// Of the difference between what a plugin asks for and what it is granted.
const LACKING_CHARACTERS: usize = 600;
const PACKAGE: &str = "dovetail:plugin/";
const VERSION: &str = "0.1.0";
const MAGIC: &[u8] = b"\0asm";
/// Version and layer that follow the magic number of a core module; a component's layer is 1.
const CORE_LAYER: &[u8] = &[0, 0];

/// A component that was checked, compiled and described, with its limits and configuration. Cheap to clone.
#[derive(Clone)]
pub struct Plugin {
    pub(crate) inner: Arc<Loaded>,
}

pub(crate) struct Loaded {
    pub(crate) exports: Exports,
    pub(crate) descriptor: Descriptor,
    pub(crate) limits: Limits,
    pub(crate) config: String,
    grants: Grants,
    digest: String,
    _ticker: Arc<Ticker>,
}

impl Loaded {
    /// What of a relation the plugin both asks for and is granted.
    pub(crate) fn view(&self, relation: &Relation) -> Option<View> {
        self.grants.restrict(relation, self.descriptor.view(relation)?)
    }

    pub(crate) fn sees_messages(&self) -> bool {
        self.descriptor.wants_messages() && self.grants.messages()
    }

    pub(crate) fn given(&self) -> Given {
        Given { clock: self.grants.clock, randomness: self.grants.randomness }
    }
}

/// A component, ready to be instantiated.
pub(crate) struct Exports {
    pub(crate) pre: InstancePre<Host>,
    pub(crate) lifecycle: lifecycle::GuestIndices,
    pub(crate) form: FormIndices,
}

pub(crate) enum FormIndices {
    Typed(typed::GuestIndices),
    Packed(wasmtime::component::ComponentExportIndex),
}

/// How events are handed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Typed,
    Packed,
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The configuration may hold secrets.
        let descriptor = &self.inner.descriptor;
        f.debug_struct("Plugin")
            .field("name", &descriptor.name)
            .field("version", &descriptor.version)
            .field("digest", &self.inner.digest)
            .finish_non_exhaustive()
    }
}

impl Plugin {
    pub fn descriptor(&self) -> &Descriptor {
        &self.inner.descriptor
    }

    /// SHA-256 of the component, in hexadecimal.
    pub fn digest(&self) -> &str {
        &self.inner.digest
    }

    pub fn form(&self) -> Form {
        match self.inner.exports.form {
            FormIndices::Typed(_) => Form::Typed,
            FormIndices::Packed(_) => Form::Packed,
        }
    }

    /// A fresh instance for one lane, initialized. It shares nothing with any other.
    ///
    /// # Errors
    /// [`CallError::Fatal`] when the plugin refuses its configuration; a trap when it cannot start within its limits.
    pub fn instantiate(&self, lane: u32, lanes: u32) -> Result<Instance, CallError> {
        Instance::start(Arc::clone(&self.inner), lane, lanes)
    }
}

impl Sandbox {
    /// Loads a plugin from a file; see [`load`](Self::load).
    ///
    /// # Errors
    /// Also when the file cannot be read.
    pub fn load_file(
        &self,
        path: &Path,
        limits: Limits,
        grants: &Grants,
        config: &str,
    ) -> Result<Plugin, Refusal> {
        let bytes = read(path, self.limits.bytes)?;
        self.load(&bytes, limits, grants, config)
    }

    /// Checks, compiles and describes a component. Takes as long as its compilation, a minute for an interpreter, unless
    /// it was compiled before.
    ///
    /// # Errors
    /// When it is not a plugin that this host can run, refuses its configuration, or asks for what it is not granted.
    pub fn load(
        &self,
        bytes: &[u8],
        limits: Limits,
        grants: &Grants,
        config: &str,
    ) -> Result<Plugin, Refusal> {
        self.admit(bytes)?;
        let digest = digest(bytes);
        let found = hex(&digest);
        if grants.digest.as_ref().is_some_and(|pinned| *pinned != found) {
            return Err(Refusal::Digest { found });
        }
        let component = self.compiled(bytes, &digest)?;
        let (exports, descriptor) = Self::described(&component, limits, config)?;
        if let Some(lacking) = grants.lacking(&descriptor) {
            let lacking = bounded(&lacking, LACKING_CHARACTERS);
            return Err(Refusal::Ungranted { lacking });
        }
        Ok(Plugin {
            inner: Arc::new(Loaded {
                exports,
                descriptor,
                limits,
                config: config.to_owned(),
                grants: grants.clone(),
                digest: found,
                _ticker: Arc::clone(&self.ticker),
            }),
        })
    }

    /// From the cache, where it was compiled before.
    pub(crate) fn compiled(
        &self,
        bytes: &[u8],
        digest: &ComponentDigest,
    ) -> Result<Component, Refusal> {
        match self.cache.as_ref().and_then(|cache| cache.load(&self.engine, digest)) {
            Some(component) => Ok(component),
            None => self.compile(bytes, digest),
        }
    }

    pub(crate) fn described(
        component: &Component,
        limits: Limits,
        config: &str,
    ) -> Result<(Exports, Descriptor), Refusal> {
        let exports = Exports::of(component)?;
        let described = Instance::describe(&exports, limits, config)?;
        let descriptor = descriptor_of(described).check().map_err(Refusal::Descriptor)?;
        Ok((exports, descriptor))
    }

    fn compile(&self, bytes: &[u8], digest: &ComponentDigest) -> Result<Component, Refusal> {
        survey(bytes, &self.limits)?;
        let content = self.compiler.compile(&self.engine, bytes, self.limits.compile)?;
        if let Some(cache) = &self.cache {
            cache.store(&content, digest);
        }
        deserialize(&self.engine, &content).map_err(|error| Refusal::Invalid(one_line(&error)))
    }

    /// What can be seen without reading into the file.
    pub(crate) fn admit(&self, bytes: &[u8]) -> Result<(), Refusal> {
        let limit = self.limits.bytes;
        if bytes.len() > limit {
            return Err(Refusal::TooBig { found: bytes.len(), limit });
        }
        if !bytes.starts_with(MAGIC) {
            let text = !bytes.is_empty() && std::str::from_utf8(bytes).is_ok();
            let hint = match bytes {
                [] => " (it is empty)",
                [0x7F, b'E', b'L', b'F', ..] => {
                    " (it is machine code: give the component that it was compiled from)"
                }
                _ if text => " (it is text: compile it first)",
                _ => "",
            };
            return Err(Refusal::NotWasm { hint });
        }
        if bytes.get(6..8) == Some(CORE_LAYER) {
            return Err(Refusal::CoreModule);
        }
        Ok(())
    }
}

/// Reads no more than is taken, whatever the file claims or becomes, and waits for nothing.
pub(crate) fn read(path: &Path, limit: usize) -> Result<Vec<u8>, Refusal> {
    let failed = |source| Refusal::Read { path: path.to_owned(), source };
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(Refusal::NoFile { path: path.to_owned() });
    }
    let found = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    if found > limit {
        return Err(Refusal::TooBig { found, limit });
    }
    let mut bytes = Vec::with_capacity(found);
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)).map_err(failed)?;
    Ok(bytes)
}

/// The chain of causes; names out of an untrusted file, so bounded and on one line.
pub(crate) fn one_line(error: &wasmtime::Error) -> String {
    let text: String = format!("{error:#}").chars().take(300).collect();
    text.replace(char::is_control, " ")
}

impl Exports {
    fn of(component: &Component) -> Result<Self, Refusal> {
        check_imports(component)?;
        let form = choose_form(component)?;
        let interface = |error: wasmtime::Error| Refusal::Interface(one_line(&error));
        let mut linker = Linker::<Host>::new(component.engine());
        logging::add_to_linker::<Host, HasSelf<Host>>(&mut linker, |host| host)
            .and_then(|()| types::add_to_linker::<Host, HasSelf<Host>>(&mut linker, |host| host))
            .and_then(|()| wasi::link(&mut linker, component))
            .map_err(interface)?;
        let pre = linker.instantiate_pre(component).map_err(interface)?;
        let lifecycle = lifecycle::GuestIndices::new(&pre).map_err(|_| Refusal::Lifecycle)?;
        let form = match form {
            Form::Typed => FormIndices::Typed(typed::GuestIndices::new(&pre).map_err(interface)?),
            Form::Packed => {
                let process = component
                    .get_export_index(None, export("packed"))
                    .and_then(|packed| component.get_export_index(Some(&packed), "process"));
                FormIndices::Packed(process.ok_or(Refusal::World)?)
            }
        };
        Ok(Self { pre, lifecycle, form })
    }
}

fn export(interface: &str) -> String {
    format!("{PACKAGE}{interface}@{VERSION}")
}

pub(crate) fn import_of(name: &str) -> Import {
    if name == export("logging") || name == export("types") {
        Import::Given
    } else if wasi::interface(name).is_some() {
        Import::Empty
    } else {
        Import::Unknown
    }
}

fn check_imports(component: &Component) -> Result<(), Refusal> {
    for (name, _) in component.component_type().imports(component.engine()) {
        if import_of(name) != Import::Unknown {
            continue;
        }
        let name = printable(name);
        return Err(match version(&name) {
            Some(found) if found != VERSION => Refusal::Version { found: name },
            _ => Refusal::Import { name },
        });
    }
    Ok(())
}

/// A component that exports both forms gets the cheaper one.
pub(crate) fn choose_form(component: &Component) -> Result<Form, Refusal> {
    let engine = component.engine();
    let component_type = component.component_type();
    let mut other_version = None;
    let mut form = None;
    for (name, item) in component_type.exports(engine) {
        if !matches!(item.ty, ComponentItem::ComponentInstance(_)) {
            continue;
        }
        if name == export("packed") {
            return Ok(Form::Packed);
        } else if name == export("typed") {
            form = Some(Form::Typed);
        } else if version(name).is_some_and(|version| version != VERSION) {
            other_version = Some(printable(name));
        }
    }
    match (form, other_version) {
        (Some(form), _) => Ok(form),
        (None, Some(found)) => Err(Refusal::Version { found }),
        (None, None) => Err(Refusal::World),
    }
}

/// The version of an interface of our package.
fn version(name: &str) -> Option<&str> {
    name.strip_prefix(PACKAGE).map(|name| name.split_once('@').map_or("", |(_, version)| version))
}

/// An untrusted text, bounded and on one line.
pub(crate) fn printable(text: &str) -> String {
    bounded(text, 200)
}

pub(crate) fn bounded(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect::<String>().replace(char::is_control, " ")
}

fn descriptor_of(descriptor: lifecycle::Descriptor) -> Descriptor {
    let interest = |interest: lifecycle::Interest| Interest {
        tables: interest.tables,
        operations: interest.operations.into_iter().map(operation_of).collect(),
        columns: interest.columns,
        before: interest.before,
    };
    Descriptor {
        name: descriptor.name,
        version: descriptor.version,
        interests: descriptor.interests.into_iter().map(interest).collect(),
    }
}

fn operation_of(operation: types::Operation) -> Operation {
    match operation {
        types::Operation::Read => Operation::Read,
        types::Operation::Insert => Operation::Insert,
        types::Operation::Update => Operation::Update,
        types::Operation::Delete => Operation::Delete,
        types::Operation::Truncate => Operation::Truncate,
        types::Operation::Message => Operation::Message,
    }
}
