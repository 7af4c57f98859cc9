//! The relations that an instance has met, and what of each its plugin gets.

use std::collections::HashMap;
use std::sync::Arc;

use dovetail_core::change::Operation;
use dovetail_core::frame::Projection;
use dovetail_core::schema::{Relation, RelationId};

use crate::interest::View;

/// One table under one definition.
pub(crate) struct Known {
    pub(crate) relation: Arc<Relation>,
    /// `None` where no interest names the table.
    view: Option<View>,
    /// Whether the guest was told.
    pub(crate) announced: bool,
}

impl Known {
    pub(crate) fn wants(&self, operation: Operation) -> bool {
        self.view.as_ref().is_some_and(|view| view.operations.contains(operation))
    }

    pub(crate) fn projection(&self) -> Option<&Projection> {
        self.view.as_ref().map(|view| &view.projection)
    }

    /// The relation's column behind an index of the guest.
    pub(crate) fn column(&self, projected: usize) -> Option<usize> {
        self.projection()?.columns.get(projected).copied()
    }
}

#[derive(Default)]
pub(crate) struct Relations {
    known: Vec<Known>,
    by_id: HashMap<(RelationId, u32), usize>,
    /// Of the last event: neighbours mostly share their relation, and comparing a pointer beats hashing.
    last: usize,
}

impl Relations {
    /// `view` is what the plugin gets of a relation that was not met before.
    pub(crate) fn index(
        &mut self,
        relation: &Arc<Relation>,
        view: impl FnOnce(&Relation) -> Option<View>,
    ) -> usize {
        let last = self.known.get(self.last);
        if last.is_some_and(|known| Arc::ptr_eq(&known.relation, relation)) {
            return self.last;
        }
        let key = (relation.id, relation.version);
        let index = *self.by_id.entry(key).or_insert_with(|| {
            let view = view(relation);
            self.known.push(Known { relation: Arc::clone(relation), view, announced: false });
            self.known.len() - 1
        });
        self.last = index;
        index
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Known> {
        self.known.get(index)
    }

    pub(crate) fn set_announced(&mut self, index: usize) {
        if let Some(known) = self.known.get_mut(index) {
            known.announced = true;
        }
    }
}
