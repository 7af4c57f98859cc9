//! Names in SQL text. The only place that quotes one; values are bound.

use dovetail_core::schema::TableName;

pub fn quote(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A table with its database, quoted.
pub fn quote_table(table: &TableName) -> String {
    format!("{}.{}", quote(&table.namespace), quote(&table.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_quotes() {
        let table = TableName { namespace: "Odd `db`".into(), name: "t; drop".into() };
        assert_eq!(quote_table(&table), "`Odd ``db```.`t; drop`");
    }
}
