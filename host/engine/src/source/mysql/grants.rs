//! What the account may do, as `SHOW GRANTS` prints it.
//!
//! Only for what cannot be tried without doing harm (a lock). Roles that are not active show up by name alone and count
//! as nothing, so the answer is never more than what the account has.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_core::schema::TableName;

use super::connection::Session;
use super::failure::Failure;

/// Privileges by what they are on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Grants {
    global: BTreeSet<String>,
    databases: BTreeMap<String, BTreeSet<String>>,
}

impl Grants {
    /// # Errors
    /// When the server cannot be asked.
    pub(super) async fn read(session: &mut Session) -> Result<Self, Failure> {
        let rows: Vec<String> = session.rows("read the grants", "SHOW GRANTS").await?;
        let mut grants = Self::default();
        for row in &rows {
            grants.add(row);
        }
        Ok(grants)
    }

    fn add(&mut self, statement: &str) {
        let Some(rest) = statement.strip_prefix("GRANT ") else { return };
        // A role: `GRANT r TO u`.
        let Some((privileges, rest)) = rest.split_once(" ON ") else { return };
        let Some((object, _)) = rest.split_once(" TO ") else { return };
        let privileges = privileges.split(',').map(|privilege| {
            let name = privilege.trim().to_ascii_uppercase();
            if name == "ALL" { "ALL PRIVILEGES".to_owned() } else { name }
        });
        if object == "*.*" {
            self.global.extend(privileges);
        } else if let Some(database) = object.strip_suffix(".*") {
            let name = database.trim_matches('`').replace("\\_", "_").replace("``", "`");
            self.databases.entry(name).or_default().extend(privileges);
        }
    }

    pub(super) fn has_global(&self, privilege: &str) -> bool {
        self.global.contains(privilege) || self.global.contains("ALL PRIVILEGES")
    }

    fn has_on(&self, database: &str, privilege: &str) -> bool {
        let on = |granted: &BTreeSet<String>| {
            granted.contains(privilege) || granted.contains("ALL PRIVILEGES")
        };
        self.has_global(privilege) || self.databases.get(database).is_some_and(on)
    }

    /// Whether `FLUSH TABLES ... WITH READ LOCK` is allowed.
    pub(super) fn may_lock(&self, tables: &[TableName]) -> bool {
        let flush = self.has_global("RELOAD") || self.has_global("FLUSH_TABLES");
        flush && tables.iter().all(|table| self.has_on(&table.namespace, "LOCK TABLES"))
    }

    /// Whether the log may be streamed.
    pub(super) fn may_stream(&self) -> bool {
        // MariaDB prints the new name for both.
        self.has_global("REPLICATION SLAVE") || self.has_global("REPLICATION REPLICA")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(statements: &[&str]) -> Grants {
        let mut grants = Grants::default();
        for statement in statements {
            grants.add(statement);
        }
        grants
    }

    #[test]
    fn a_lock_needs_two_privileges() {
        let tables = [TableName { namespace: "my_shop".into(), name: "t".into() }];
        let may = |statements: &[&str]| grants(statements).may_lock(&tables);
        assert!(may(&["GRANT ALL PRIVILEGES ON *.* TO `u`@`%` WITH GRANT OPTION"]));
        assert!(may(&[
            "GRANT SELECT, RELOAD ON *.* TO `u`@`%`",
            "GRANT LOCK TABLES ON `my\\_shop`.* TO `u`@`%`"
        ]));
        assert!(may(&[
            "GRANT LOCK TABLES ON *.* TO `u`@`%`",
            "GRANT FLUSH_TABLES ON *.* TO `u`@`%`"
        ]));
        assert!(!may(&[
            "GRANT RELOAD ON *.* TO `u`@`%`",
            "GRANT LOCK TABLES ON `other`.* TO `u`@`%`"
        ]));
        assert!(!may(&["GRANT LOCK TABLES ON *.* TO `u`@`%`", "GRANT `admin`@`%` TO `u`@`%`"]));
    }
}
