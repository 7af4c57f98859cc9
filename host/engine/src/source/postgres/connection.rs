//! Sessions for SQL.

use crate::config::Server;

use super::failure::Failure;

/// A session for SQL; ends when it is dropped.
#[derive(Debug)]
pub struct Session;

impl Session {
    pub async fn open(_server: &Server) -> Result<Self, Failure> {
        unimplemented!()
    }

    pub fn client(&self) -> &tokio_postgres::Client {
        unimplemented!()
    }
}
