//! The PostgreSQL source against private servers: what only a real server can show.

mod connecting;
mod pinning;
mod scanning;
mod streaming;

use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::Result;
use dovetail::config::{Postgres, Secret, Server as Address, SslMode, Tls};
use dovetail_core::schema::TableName;
use dovetail_tests::postgres::{Options, PASSWORD, Server, Version};
use tokio_postgres::Client;

/// Of a view.
const WORKERS: NonZeroU16 = NonZeroU16::new(2).expect("not zero");

/// A server with these statements run, and an application's session.
async fn server(sql: &str) -> Result<(Server, Client)> {
    let server = Server::start_with(Version::under_test(), Options::default())?;
    let application = server.connect().await?;
    application.batch_execute(sql).await?;
    Ok((server, application))
}

fn address(server: &Server) -> Address {
    Address {
        host: "127.0.0.1".into(),
        port: server.port(),
        database: "postgres".into(),
        user: "postgres".into(),
        password: Some(Secret::new(PASSWORD.into())),
        tls: Tls { mode: SslMode::Disable, root_certificates: None },
    }
}

fn table(name: &str) -> TableName {
    TableName { namespace: "public".into(), name: name.into() }
}

fn source(server: &Server, tables: &[&str]) -> Postgres {
    Postgres {
        server: address(server),
        tables: tables.iter().map(|name| table(name)).collect(),
        slot: "dovetail_test".into(),
        publication: "dovetail".into(),
        create_publication: true,
        pin_timeout: Duration::from_secs(30),
    }
}
