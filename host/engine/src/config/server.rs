//! Where a database server is: one `url`, or its parts as keys of their own. The kinds of servers differ in little, which
//! stands in a [`Dialect`].
//!
//! A URL is taken apart as it is written, and variables are filled into its parts: a password from the environment
//! needs no escaping and can't become a host. Only where the whole value is one variable is the URL in there taken apart.
//! No problem ever quotes a URL, because a password may stand in it.

use std::net::IpAddr;
use std::path::Path;

use super::environment::{Unfilled, is_one_variable};
use super::field::{Field, Reader, Section};
use super::tree::below;
use super::{MySqlServer, Secret, Server, SslMode, Tls};

const MODES: [(&str, SslMode); 5] = [
    ("disable", SslMode::Disable),
    ("prefer", SslMode::Prefer),
    ("require", SslMode::Require),
    ("verify-ca", SslMode::VerifyCa),
    ("verify-full", SslMode::VerifyFull),
];

/// How a kind of server is addressed.
struct Dialect {
    url: &'static str,
    schemes: &'static [&'static str],
    port: u16,
    /// Whether a connection belongs to one database.
    database: bool,
}

const POSTGRES: Dialect = Dialect {
    url: "postgresql://USER@HOST:PORT/DATABASE",
    schemes: &["postgresql://", "postgres://"],
    port: 5432,
    database: true,
};

const MYSQL: Dialect = Dialect {
    url: "mysql://USER@HOST:PORT",
    schemes: &["mysql://", "mariadb://"],
    port: 3306,
    database: false,
};

const MYSQL_DATABASE: Dialect =
    Dialect { url: "mysql://USER@HOST:PORT/DATABASE", database: true, ..MYSQL };

const PORT: &str = "a port from 1 to 65535";

/// What was given, before defaults; each part comes from the URL or from a key of its own.
#[derive(Default)]
struct Parts {
    host: Option<String>,
    port: Option<u16>,
    database: Option<String>,
    user: Option<String>,
    password: Option<Secret>,
    mode: Option<SslMode>,
    root_certificates: Option<String>,
}

/// Reads the keys of a PostgreSQL server out of a section that may have others.
pub(in crate::config) fn check(
    section: &mut Section<'_>,
    reader: &mut Reader<'_>,
    directory: &Path,
) -> Option<Server> {
    let Found { host, port, database, user, password, tls } =
        find(section, reader, directory, &POSTGRES)?;
    Some(Server { host, port, database: database?, user, password, tls })
}

/// Reads the keys of a MySQL or MariaDB server out of a section that may have others.
pub(in crate::config) fn check_mysql(
    section: &mut Section<'_>,
    reader: &mut Reader<'_>,
    directory: &Path,
) -> Option<MySqlServer> {
    let Found { host, port, user, password, tls, .. } = find(section, reader, directory, &MYSQL)?;
    Some(MySqlServer { host, port, user, password, tls })
}

/// As [`check_mysql`], with the database that a connection belongs to.
pub(in crate::config) fn check_mysql_database(
    section: &mut Section<'_>,
    reader: &mut Reader<'_>,
    directory: &Path,
) -> Option<(MySqlServer, String)> {
    let Found { host, port, database, user, password, tls } =
        find(section, reader, directory, &MYSQL_DATABASE)?;
    Some((MySqlServer { host, port, user, password, tls }, database?))
}

/// A server's keys with their defaults.
struct Found {
    host: String,
    port: u16,
    /// There where the dialect has one.
    database: Option<String>,
    user: String,
    password: Option<Secret>,
    tls: Tls,
}

fn find(
    section: &mut Section<'_>,
    reader: &mut Reader<'_>,
    directory: &Path,
    dialect: &Dialect,
) -> Option<Found> {
    let url = section.optional("url");
    let place = url.as_ref().map_or(section.place, Field::place);
    // Every key is asked for before the first way out: one that was not would be reported as unknown.
    let address = match &url {
        Some(field) => {
            refuse_address(section, reader, dialect);
            from_url(field, reader, dialect)
        }
        None => address(section, reader, dialect),
    };
    let extras = extras(section, reader);
    let parts = merge(section, reader, address?, extras?);
    let (host, user) = (parts.host?, parts.user?);
    if let Some(text) = unusable_host(&host) {
        reader.report(place, &section.path, text);
        return None;
    }
    let tls = Tls {
        mode: parts.mode.unwrap_or_else(|| default_mode(&host)),
        root_certificates: parts.root_certificates.map(|file| directory.join(file)),
    };
    let port = parts.port.unwrap_or(dialect.port);
    Some(Found { host, port, database: parts.database, user, password: parts.password, tls })
}

fn address(section: &mut Section<'_>, reader: &mut Reader<'_>, dialect: &Dialect) -> Option<Parts> {
    let mut name = |key| {
        let field =
            section.required(reader, key, "a name, or `url` in place of the single keys")?;
        field.text(reader, "a name")
    };
    let (host, user) = (name("host"), name("user"));
    let database = if dialect.database { name("database").map(Some) } else { Some(None) };
    let port = match section.optional("port") {
        Some(field) => field.parsed(reader, PORT, port),
        None => Some(dialect.port),
    };
    Some(Parts {
        host: Some(host?),
        port: Some(port?),
        database: database?,
        user: Some(user?),
        ..Parts::default()
    })
}

fn refuse_address(section: &mut Section<'_>, reader: &mut Reader<'_>, dialect: &Dialect) {
    let database = dialect.database.then_some("database");
    for key in ["host", "port", "user"].into_iter().chain(database) {
        if let Some(field) = section.optional(key) {
            field.wrong(reader, "stands beside `url`, which has it already; give one of them");
        }
    }
}

/// `password`, `sslmode` and `sslrootcert`, which may stand beside a URL.
fn extras(section: &mut Section<'_>, reader: &mut Reader<'_>) -> Option<Parts> {
    let password = section.optional("password").map(|field| field.secret(reader, "a password"));
    let mode = section.optional("sslmode").map(|field| mode(&field, reader));
    let root = section.optional("sslrootcert").map(|field| field.text(reader, "a PEM file"));
    Some(Parts {
        password: password.map_or(Some(None), |text| text.map(Secret::new).map(Some))?,
        mode: mode.map_or(Some(None), |mode| mode.map(Some))?,
        root_certificates: root.map_or(Some(None), |root| root.map(Some))?,
        ..Parts::default()
    })
}

fn mode(field: &Field<'_>, reader: &mut Reader<'_>) -> Option<SslMode> {
    if field.scalar(reader, "an sslmode")?.written == "allow" {
        let text = "`allow` is not supported, because it tries without TLS first; \
                    expected prefer or require";
        field.wrong(reader, text);
        return None;
    }
    field.choice(reader, &MODES)
}

fn merge(section: &Section<'_>, reader: &mut Reader<'_>, address: Parts, extras: Parts) -> Parts {
    for (key, twice) in [
        ("password", address.password.is_some() && extras.password.is_some()),
        ("sslmode", address.mode.is_some() && extras.mode.is_some()),
        ("sslrootcert", address.root_certificates.is_some() && extras.root_certificates.is_some()),
    ] {
        if twice {
            let text = "stands in `url` as well; give one of them";
            reader.report(section.place, &below(&section.path, key), text);
        }
    }
    Parts {
        password: address.password.or(extras.password),
        mode: address.mode.or(extras.mode),
        root_certificates: address.root_certificates.or(extras.root_certificates),
        ..address
    }
}

fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port != 0)
}

/// The system's own sockets and lists of hosts are libpq's; a replication connection here is TCP to one server.
fn unusable_host(host: &str) -> Option<&'static str> {
    if host.starts_with('/') {
        Some("the host is a directory of sockets, expected a host's name or address")
    } else if host.contains(',') {
        Some("the host is a list, expected one: the log's position belongs to one server")
    } else {
        None
    }
}

fn default_mode(host: &str) -> SslMode {
    let loopback = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    if loopback { SslMode::Prefer } else { SslMode::VerifyFull }
}

fn from_url(field: &Field<'_>, reader: &mut Reader<'_>, dialect: &Dialect) -> Option<Parts> {
    let written = field.scalar(reader, dialect.url)?.written.as_str();
    let filled;
    let parts = if is_one_variable(written) {
        filled = field.text(reader, dialect.url)?;
        take_apart(&filled, dialect, percent_decode)
    } else {
        let environment = reader.environment;
        take_apart(written, dialect, |part| environment.fill_with(part, percent_decode))
    };
    match parts {
        Ok(parts) => Some(parts),
        Err(error) => {
            field.wrong(reader, error.to_string());
            None
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum InvalidUrl {
    #[error("is not a URL of the form {0}")]
    Form(&'static str),
    #[error("the URL has no {0}, expected {1}")]
    Missing(&'static str, &'static str),
    #[error("the URL names a database; each table is named with its own, as in [shop.cities]")]
    Database,
    #[error("the URL's port is not {PORT}")]
    Port,
    #[error("the URL has a parameter that is not understood, expected sslmode or sslrootcert")]
    Parameter,
    #[error("the URL's sslmode is not one of disable, prefer, require, verify-ca or verify-full")]
    Mode,
    #[error("in the URL, {0}")]
    Unfilled(#[from] Unfilled),
}

fn take_apart(
    url: &str,
    dialect: &Dialect,
    fill: impl Fn(&str) -> Result<String, Unfilled>,
) -> Result<Parts, InvalidUrl> {
    let form = || InvalidUrl::Form(dialect.url);
    let missing = |name| InvalidUrl::Missing(name, dialect.url);
    let rest = dialect.schemes.iter().find_map(|scheme| url.strip_prefix(scheme));
    let rest = rest.ok_or_else(form)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = match (rest.split_once('/'), dialect.database) {
        (Some((authority, database)), _) => (authority, database),
        (None, true) => return Err(missing("database")),
        (None, false) => (rest, ""),
    };
    let (login, address) = authority.rsplit_once('@').ok_or_else(|| missing("user"))?;
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (login, None),
    };
    let (host, port_text) = match address.strip_prefix('[') {
        Some(bracketed) => {
            let (host, rest) = bracketed.split_once(']').ok_or_else(form)?;
            let port = rest.strip_prefix(':');
            if port.is_none() && !rest.is_empty() {
                return Err(form());
            }
            (host, port)
        }
        None => match address.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        },
    };
    let named = |part: &str, name| match fill(part)? {
        text if text.is_empty() => Err(missing(name)),
        text => Ok(Some(text)),
    };
    let database = match dialect.database {
        true => named(database, "database")?,
        false if database.is_empty() => None,
        false => return Err(InvalidUrl::Database),
    };
    let mut parts = Parts {
        host: named(host, "host")?,
        database,
        user: named(user, "user")?,
        ..Parts::default()
    };
    if let Some(text) = port_text {
        parts.port = Some(port(&fill(text)?).ok_or(InvalidUrl::Port)?);
    }
    if let Some(text) = password {
        parts.password = Some(Secret::new(fill(text)?));
    }
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').ok_or(InvalidUrl::Parameter)?;
        let value = fill(value)?;
        match name {
            "sslmode" => {
                let mode = MODES.iter().find(|(word, _)| *word == value);
                parts.mode = Some(mode.ok_or(InvalidUrl::Mode)?.1);
            }
            "sslrootcert" => parts.root_certificates = Some(value),
            _ => return Err(InvalidUrl::Parameter),
        }
    }
    Ok(parts)
}

fn percent_decode(text: &str) -> Result<String, Unfilled> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2).ok_or(Unfilled::Percent)?;
        let digit = |digit: &u8| char::from(*digit).to_digit(16);
        let byte = match digits {
            [high, low] => digit(high).zip(digit(low)).map(|(high, low)| high * 16 + low),
            _ => None,
        };
        bytes.push(byte.and_then(|byte| u8::try_from(byte).ok()).ok_or(Unfilled::Percent)?);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| Unfilled::Percent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;

    fn apart(url: &str) -> Result<Parts, InvalidUrl> {
        let environment: Environment = [("P", "a@b/c%:?")].into_iter().collect();
        take_apart(url, &POSTGRES, |part| environment.fill_with(part, percent_decode))
    }

    #[test]
    fn a_url_of_mysql_names_no_database() {
        for url in ["mysql://me:p%40ss@db:3307/", "mariadb://me:p%40ss@db:3307?sslmode=require"] {
            let parts = take_apart(url, &MYSQL, percent_decode).expect("sound");
            assert_eq!((parts.user.as_deref(), parts.host.as_deref()), (Some("me"), Some("db")));
            assert_eq!(parts.password, Some(Secret::new("p@ss".into())));
            assert_eq!((parts.port, parts.database), (Some(3307), None));
        }
        for (url, expected) in
            [("mysql://me@db/shop", "names a database"), ("postgresql://u@h/d", "form mysql:")]
        {
            let error = take_apart(url, &MYSQL, percent_decode).map(|_| ()).expect_err(url);
            assert!(error.to_string().contains(expected), "{url}: {error}");
        }
    }

    #[test]
    fn a_url_is_taken_apart() {
        let parts =
            apart("postgresql://me%40x:${P}@[::1]:5433/shop?sslmode=require").expect("sound");
        assert_eq!(parts.user.as_deref(), Some("me@x"));
        assert_eq!(parts.password, Some(Secret::new("a@b/c%:?".into())));
        assert_eq!(parts.host.as_deref(), Some("::1"));
        assert_eq!(parts.port, Some(5433));
        assert_eq!(parts.database.as_deref(), Some("shop"));
        assert_eq!(parts.mode, Some(SslMode::Require));
    }

    #[test]
    fn a_url_that_leaves_something_open_is_refused() {
        for (url, expected) in [
            ("mysql://u@h/d", "is not a URL"),
            ("postgresql://h/d", "no user"),
            ("postgresql://u@h", "no database"),
            ("postgresql://u@h/", "no database"),
            ("postgresql://u@/d", "no host"),
            ("postgresql://u@h:0/d", "port"),
            ("postgresql://u@[::1/d", "is not a URL"),
            ("postgresql://u@h/d?application_name=x", "parameter"),
            ("postgresql://u@h/d?sslmode=allow", "sslmode"),
            ("postgresql://u:%zz@h/d", "hexadecimal"),
        ] {
            let text = apart(url).map(|_| ()).expect_err(url).to_string();
            assert!(text.contains(expected), "{url}: {text}");
        }
    }

    #[test]
    fn tls_is_verified_except_on_loopback() {
        for host in ["localhost", "127.0.0.1", "127.8.8.8", "::1"] {
            assert_eq!(default_mode(host), SslMode::Prefer, "{host}");
        }
        for host in ["db.example.org", "10.0.0.1", "localhost.example.org"] {
            assert_eq!(default_mode(host), SslMode::VerifyFull, "{host}");
        }
    }
}
