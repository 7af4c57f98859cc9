//! Replies in the packed form, written by hand so that they can be wrong.

/// The sections of a reply. Whatever the attack is about stands in the outcome of the first event; the other four pass.
#[derive(Default)]
pub(crate) struct Reply {
    pub(crate) first: [u32; 3],
    pub(crate) cells: Vec<[u8; 16]>,
    pub(crate) emissions: Vec<[u32; 9]>,
    pub(crate) pairs: Vec<[u32; 4]>,
    pub(crate) heap: Vec<u8>,
}

const EVENTS: u32 = 5;
pub(crate) const NONE: u32 = u32::MAX;

pub(crate) const PATCH: u32 = 2;
pub(crate) const EMIT: u32 = 3;
pub(crate) const ROUTE: u32 = 4;

impl Reply {
    pub(crate) fn frame(&self) -> Vec<u8> {
        self.frame_of(EVENTS)
    }

    /// A reply that claims this number of outcomes, and has them.
    pub(crate) fn frame_of(&self, outcomes: u32) -> Vec<u8> {
        let length = |length: usize| u32::try_from(length).expect("small");
        let (cells, emissions) = (length(self.cells.len()), length(self.emissions.len()));
        let (pairs, heap) = (length(self.pairs.len()), length(self.heap.len()));
        let mut frame = b"DOVR".to_vec();
        for word in [1, outcomes, cells, emissions, pairs, heap, 0] {
            frame.extend(u32::to_le_bytes(word));
        }
        for outcome in (0..outcomes).map(|at| if at == 0 { self.first } else { [0; 3] }) {
            frame.extend(outcome.iter().flat_map(|word| word.to_le_bytes()));
        }
        frame.extend(self.cells.concat());
        frame.extend(self.emissions.concat().iter().flat_map(|word| word.to_le_bytes()));
        frame.extend(self.pairs.concat().iter().flat_map(|word| word.to_le_bytes()));
        frame.extend(&self.heap);
        frame
    }
}

/// The reply that patches one cell of the first event.
pub(crate) fn patch(cell: [u8; 16]) -> Vec<u8> {
    patch_with_heap(cell, b"")
}

pub(crate) fn patch_with_heap(cell: [u8; 16], heap: &[u8]) -> Vec<u8> {
    Reply { first: [PATCH, 0, 1], cells: vec![cell], heap: heap.into(), ..Reply::default() }.frame()
}

/// The reply that emits in place of the first event.
pub(crate) fn emit(emission: [u32; 9], cells: Vec<[u8; 16]>) -> Vec<u8> {
    Reply { first: [EMIT, 0, 1], emissions: vec![emission], cells, ..Reply::default() }.frame()
}

/// The reply that routes the first event.
pub(crate) fn route(targets: &[u16]) -> Vec<u8> {
    let heap: Vec<u8> = targets.iter().flat_map(|target| target.to_le_bytes()).collect();
    let count = u32::try_from(targets.len()).expect("small");
    Reply { first: [ROUTE, 0, count], heap, ..Reply::default() }.frame()
}

pub(crate) fn cell(tag: u8, column: u16, length: u32, word: u64) -> [u8; 16] {
    let mut cell = [0; 16];
    cell[0] = tag;
    cell[2..4].copy_from_slice(&column.to_le_bytes());
    cell[4..8].copy_from_slice(&length.to_le_bytes());
    cell[8..].copy_from_slice(&word.to_le_bytes());
    cell
}

/// An honest reply with so many bytes of it overwritten.
pub(crate) fn spoiled(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = Reply::default().frame();
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}
