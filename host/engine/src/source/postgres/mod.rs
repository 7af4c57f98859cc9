//! PostgreSQL: preflight, pin, views, stream.
