//! What a file is, for who considers to deploy it: all that can be told without granting it anything.

use std::path::Path;

use wasmtime::component::Component;

use crate::cache::{digest, hex};
use crate::engine::Sandbox;
use crate::error::Refusal;
use crate::interest::Descriptor;
use crate::limits::Limits;
use crate::plugin::{Form, choose_form, import_of, printable, read};

/// How an import is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Import {
    /// A function of this host.
    Given,
    /// Linked, with nothing behind it.
    Empty,
    /// Not served: such a component is refused.
    Unknown,
}

#[derive(Debug)]
pub struct Inspection {
    /// SHA-256, in hexadecimal.
    pub digest: String,
    pub bytes: usize,
    pub imports: Vec<(String, Import)>,
    /// What it exports, or why that is no plugin.
    pub form: Result<Form, Refusal>,
    /// What it declares under the configuration that was given; or why it is refused.
    pub described: Result<Descriptor, Refusal>,
}

impl Sandbox {
    /// Compiles and describes a component, and instantiates it for nothing else.
    ///
    /// # Errors
    /// When the file is no component that can be read and compiled.
    pub fn inspect(
        &self,
        path: &Path,
        limits: Limits,
        config: &str,
    ) -> Result<Inspection, Refusal> {
        let bytes = read(path, self.limits.bytes)?;
        self.admit(&bytes)?;
        let digest = digest(&bytes);
        let component = self.compiled(&bytes, &digest)?;
        Ok(Inspection {
            digest: hex(&digest),
            bytes: bytes.len(),
            imports: imports(&component),
            form: choose_form(&component),
            described: Self::described(&component, limits, config)
                .map(|(_, descriptor)| descriptor),
        })
    }
}

fn imports(component: &Component) -> Vec<(String, Import)> {
    let component_type = component.component_type();
    let imports = component_type.imports(component.engine());
    imports.map(|(name, _)| (printable(name), import_of(name))).collect()
}
