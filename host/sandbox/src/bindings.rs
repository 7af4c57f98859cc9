//! What wasmtime generates from `wit/0.1.0`.
//!
//! Values go in borrowed and come out owned, hence the two forms of each type (`ValueParam`, `ValueResult`).

wasmtime::component::bindgen!({
    path: "../../wit/0.1.0",
    world: "transform",
    imports: { default: trappable },
    ownership: Borrowing { duplicate_if_necessary: true },
});
