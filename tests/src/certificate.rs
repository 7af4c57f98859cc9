//! A certificate authority of one test, and a server certificate for `localhost` and 127.0.0.1 that it signed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

pub(crate) fn authority(directory: &Path) -> PathBuf {
    directory.join("authority.pem")
}

/// Puts `server.crt` and `server.key` into `data`; what is the authority's stays in `directory`.
pub(crate) fn issue(directory: &Path, data: &Path) -> Result<()> {
    let file = |name: &str| directory.join(name).display().to_string();
    let server = |name: &str| data.join(name).display().to_string();
    openssl(&[
        &[
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=test authority",
        ],
        &["-addext", "basicConstraints=critical,CA:TRUE"],
        &["-addext", "keyUsage=critical,keyCertSign,digitalSignature"],
        &["-keyout", &file("authority.key"), "-out", &file("authority.pem")],
    ])?;
    openssl(&[
        &["req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"],
        &["-keyout", &server("server.key"), "-out", &file("request.pem")],
    ])?;
    fs::write(directory.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n")?;
    openssl(&[
        &["x509", "-req", "-days", "2", "-CAcreateserial", "-extfile", &file("names")],
        &["-CA", &file("authority.pem"), "-CAkey", &file("authority.key")],
        &["-in", &file("request.pem"), "-out", &server("server.crt")],
    ])?;
    fs::set_permissions(data.join("server.key"), fs::Permissions::from_mode(0o600))?;
    Ok(())
}

fn openssl(arguments: &[&[&str]]) -> Result<()> {
    let output = Command::new("openssl")
        .args(arguments.iter().flat_map(|part| part.iter()))
        .output()
        .context("start openssl (tests/install debian installs it)")?;
    ensure!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
