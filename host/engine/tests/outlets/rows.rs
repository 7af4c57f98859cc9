//! Folding what the outlet received gives the source's rows.

use crate::subject::{Place, Subject, try_write, write};
use crate::text::texts;
use crate::world::*;
use dovetail::outlet::Error;
use dovetail_core::seam::Recorded;
use dovetail_core::value::{Row, Value};

#[tokio::test]
async fn inserts_updates_and_deletes_leave_the_rows_of_the_source() {
    for subject in Subject::all().await {
        let people = people();
        let mut outlet = subject.open_with(&people).await;
        write(
            &mut outlet,
            [
                chunk(&people, [row(1, "ada", "-"), row(2, "bob", "x"), row(3, "eve", "y")]),
                transaction(
                    200,
                    [
                        update(&people, row(1, "ada l.", "z")),
                        delete(&people, key_only(2)),
                        insert(&people, row(4, "dan", "")),
                    ],
                ),
                transaction(
                    300,
                    [insert(&people, row(2, "bob again", "-")), delete(&people, key_only(3))],
                ),
            ],
        )
        .await;
        let expected = [row(1, "ada l.", "z"), row(2, "bob again", "-"), row(4, "dan", "")];
        assert_eq!(subject.rows(&people).await, texts(expected), "{:?}", subject.place);
    }
}

#[tokio::test]
async fn changes_of_one_key_in_one_group_keep_their_order() {
    for subject in Subject::all().await {
        let people = people();
        let mut outlet = subject.open_with(&people).await;
        write(
            &mut outlet,
            [
                transaction(
                    200,
                    [insert(&people, row(1, "a", "b")), update(&people, row(1, "c", "~"))],
                ),
                transaction(300, [delete(&people, key_only(1)), insert(&people, row(1, "d", "e"))]),
                transaction(
                    400,
                    [update(&people, row(1, "~", "f")), update(&people, row(1, "g", "~"))],
                ),
                transaction(500, [insert(&people, row(2, "h", "i")), delete(&people, key_only(2))]),
            ],
        )
        .await;
        assert_eq!(subject.rows(&people).await, texts([row(1, "g", "f")]), "{:?}", subject.place);
    }
}

#[tokio::test]
async fn a_column_that_was_not_in_the_log_keeps_its_value() {
    for subject in Subject::all().await {
        let people = people();
        let mut outlet = subject.open_with(&people).await;
        write(&mut outlet, [chunk(&people, [row(1, "ada", "large"), row(2, "bob", "-")])]).await;
        write(
            &mut outlet,
            [transaction(
                200,
                [update(&people, row(1, "ada l.", "~")), update(&people, row(2, "~", "small"))],
            )],
        )
        .await;
        let expected = texts([row(1, "ada l.", "large"), row(2, "bob", "small")]);
        assert_eq!(subject.rows(&people).await, expected, "{:?}", subject.place);
    }
}

#[tokio::test]
async fn a_column_that_nobody_has_is_refused_and_nothing_lands() {
    for subject in Subject::transactional().await {
        let people = people();
        let mut outlet = subject.open_with(&people).await;
        let result = try_write(
            &mut outlet,
            [transaction(
                200,
                [insert(&people, row(1, "ada", "x")), update(&people, row(2, "bob", "~"))],
            )],
        )
        .await;
        assert!(matches!(result, Err(Error::Definite { .. })), "{:?}: {result:?}", subject.place);
        let again = try_write(&mut outlet, [transaction(300, [])]).await;
        assert!(again.is_err(), "an outlet that failed must be opened again");
        outlet.close().await.expect("closed");
        assert_eq!(subject.rows(&people).await, texts([]), "{:?}", subject.place);
        assert_eq!(subject.open().await.recorded(), Recorded::Empty);
    }
}

#[tokio::test]
async fn a_key_change_moves_the_row_with_what_the_log_left_out() {
    for subject in Subject::all().await {
        let people = people();
        let mut outlet = subject.open_with(&people).await;
        write(
            &mut outlet,
            [chunk(&people, [row(1, "ada", "large"), row(2, "bob", "big"), row(3, "eve", "huge")])],
        )
        .await;
        let partial = move_row(&people, key_only(1), row(10, "ada", "~"));
        let whole = move_row(&people, key_only(2), row(20, "bob", "new"));
        write(&mut outlet, [transaction(200, partial.into_iter().chain(whole))]).await;
        // A row that was written in the same group.
        let fresh = [insert(&people, row(4, "dan", "vast"))];
        let moved = move_row(&people, key_only(4), row(40, "dan", "~"));
        write(&mut outlet, [transaction(300, fresh.into_iter().chain(moved))]).await;
        let expected = [
            row(10, "ada", "large"),
            row(20, "bob", "new"),
            row(3, "eve", "huge"),
            row(40, "dan", "vast"),
        ];
        assert_eq!(subject.rows(&people).await, texts(expected), "{:?}", subject.place);
    }
}

#[tokio::test]
async fn keys_that_change_places_do_not_meet() {
    for subject in Subject::all().await {
        let people = people();
        let mut outlet = subject.open_with(&people).await;
        write(&mut outlet, [chunk(&people, [row(1, "ada", "a"), row(2, "bob", "b")])]).await;
        let changes = [
            move_row(&people, key_only(1), row(3, "ada", "~")),
            move_row(&people, key_only(2), row(1, "bob", "~")),
            move_row(&people, key_only(3), row(2, "ada", "~")),
        ];
        write(&mut outlet, [transaction(200, changes.into_iter().flatten())]).await;
        let expected = texts([row(1, "bob", "b"), row(2, "ada", "a")]);
        assert_eq!(subject.rows(&people).await, expected, "{:?}", subject.place);
    }
}

#[tokio::test]
async fn half_of_a_key_change_whose_other_half_a_plugin_took_is_a_delete() {
    for subject in Subject::all().await {
        let people = people();
        let mut outlet = subject.open_with(&people).await;
        write(&mut outlet, [chunk(&people, [row(1, "ada", "a"), row(2, "bob", "b")])]).await;
        let [leaves, _] = move_row(&people, key_only(1), row(3, "ada", "~"));
        write(&mut outlet, [transaction(200, [leaves, update(&people, row(2, "bo", "~"))])]).await;
        let [leaves, _] = move_row(&people, key_only(2), row(4, "bo", "~"));
        write(&mut outlet, [transaction(300, [leaves])]).await;
        assert_eq!(subject.rows(&people).await, texts([]), "{:?}", subject.place);
    }
}

#[tokio::test]
async fn a_table_without_a_key_keeps_equal_rows_apart() {
    for subject in Subject::all().await {
        let log = keyless();
        let mut outlet = subject.open_with(&log).await;
        write(&mut outlet, [chunk(&log, [row(1, "a", "-"), row(1, "a", "-"), row(1, "a", "-")])])
            .await;
        write(
            &mut outlet,
            [transaction(
                200,
                [
                    delete(&log, row(1, "a", "-")),
                    update_from(&log, row(1, "a", "-"), row(1, "b", "-")),
                    insert(&log, row(2, "c", "d")),
                ],
            )],
        )
        .await;
        let expected = texts([row(1, "a", "-"), row(1, "b", "-"), row(2, "c", "d")]);
        assert_eq!(subject.rows(&log).await, expected, "{:?}", subject.place);
    }
}

#[tokio::test]
async fn an_old_row_that_is_not_there_is_refused() {
    for subject in Subject::transactional().await {
        let log = keyless();
        for change in
            [delete(&log, row(1, "a", "-")), update_from(&log, row(1, "a", "-"), row(1, "b", "-"))]
        {
            let mut outlet = subject.open_with(&log).await;
            let result = try_write(&mut outlet, [transaction(200, [change])]).await;
            let Err(Error::Definite { remedy, .. }) = result else {
                panic!("{:?}: {result:?}", subject.place)
            };
            assert!(remedy.contains("has no key") && remedy.contains("plugin"), "{remedy}");
        }
    }
}

/// The log gives the old key of such an update even where it gives no old row.
#[tokio::test]
async fn a_row_whose_key_gets_another_spelling_leaves_no_ghost() {
    let prices = relation("prices", vec![column("price", "numeric"), column("n", "text")], &[0]);
    let price = |text: &str, n| Row::new(vec![Value::Decimal(text.into()), word(n)]);
    for subject in Subject::all().await {
        let mut outlet = subject.open_with(&prices).await;
        write(&mut outlet, [chunk(&prices, [price("1.0", "a"), price("2.0", "long")])]).await;
        let whole = update_from(&prices, price("1.0", "~"), price("1.00", "b"));
        let partial = update_from(&prices, price("2.0", "~"), price("2.00", "~"));
        write(&mut outlet, [transaction(200, [whole, partial])]).await;
        if subject.place == Place::File {
            let lines = subject.lines();
            let [_, _, whole, partial] = lines.as_slice() else { panic!("{lines:?}") };
            assert_eq!(
                (&whole["before"]["price"], &whole["key"]["price"]),
                (&"1.0".into(), &"1.00".into())
            );
            assert_eq!(
                partial["before"].as_object().map(serde_json::Map::len),
                Some(1),
                "{partial}"
            );
            continue;
        }
        let expected = texts([price("1.00", "b"), price("2.00", "long")]);
        assert_eq!(subject.rows(&prices).await, expected, "{:?}", subject.place);
    }
}

#[tokio::test]
async fn a_key_that_is_spelled_differently_is_one_row() {
    for subject in Subject::transactional().await {
        let prices =
            relation("prices", vec![column("price", "numeric"), column("n", "int4")], &[0]);
        let price = |text: &str, n| Row::new(vec![Value::Decimal(text.into()), Value::Int(n)]);
        let mut outlet = subject.open_with(&prices).await;
        write(&mut outlet, [chunk(&prices, [price("1.0", 1)])]).await;
        write(
            &mut outlet,
            [transaction(200, [update_from(&prices, price("1.0", 1), price("1.00", 2))])],
        )
        .await;
        assert_eq!(subject.rows(&prices).await, texts([price("1.00", 2)]), "{:?}", subject.place);
    }
}

#[tokio::test]
async fn a_truncate_empties_the_table_and_what_follows_stays() {
    for subject in Subject::all().await {
        let (people, log) = (people(), keyless());
        let mut outlet = subject.open_with(&people).await;
        outlet.prepare(&log, true).await.expect("ready");
        write(&mut outlet, [chunk(&people, [row(1, "ada", "a")]), chunk(&log, [row(9, "x", "y")])])
            .await;
        write(
            &mut outlet,
            [transaction(
                200,
                [
                    insert(&people, row(2, "bob", "b")),
                    truncate(&people),
                    insert(&people, row(3, "eve", "c")),
                ],
            )],
        )
        .await;
        assert_eq!(subject.rows(&people).await, texts([row(3, "eve", "c")]), "{:?}", subject.place);
        assert_eq!(subject.rows(&log).await, texts([row(9, "x", "y")]), "{:?}", subject.place);
    }
}
