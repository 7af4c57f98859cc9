//! The durable state of a pipeline.
