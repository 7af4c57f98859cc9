use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
const B: &str = "4e11fa47-71ca-11e1-9e33-c80aa9429562";

fn set(text: &str) -> GtidSet {
    text.parse().unwrap()
}

#[test]
fn a_set_reads_back_what_it_prints() {
    for text in [
        String::new(),
        format!("{A}:1"),
        format!("{A}:1-5:7:9-9223372036854775806"),
        format!("{A}:1-5:reports:1-2:4:sales:7,{B}:backup:1-3"),
    ] {
        assert_eq!(set(&text).to_string(), text);
        let json = serde_json::to_string(&set(&text)).unwrap();
        assert_eq!(serde_json::from_str::<GtidSet>(&json).unwrap(), set(&text));
    }
}

#[test]
fn a_set_has_one_form() {
    let text = format!("{B}:1,\n{A}:9:1-3,{A}:reports:2:1,{A}:4-5:2");
    assert_eq!(set(&text).to_string(), format!("{A}:1-5:9:reports:1-2,{B}:1"));
}

#[test]
fn what_is_not_a_set_is_refused() {
    let wrong = [
        "",
        ":",
        ":1-",
        ":-1",
        ":2-1",
        ":0-1",
        ":1-2-3",
        ":1,",
        ":1 -2",
        ":reports",
        ":1:reports",
        ":a:b:1 :2",
        ":1-9223372036854775807",
        ":+1",
        ":1;2",
        "::1",
    ];
    for rest in wrong {
        let text = format!("{A}{rest},{B}:1");
        assert!(text.parse::<GtidSet>().is_err(), "{text}");
    }
    assert!(format!("{A}:1,").parse::<GtidSet>().is_err());
    assert!(format!(",{A}:1").parse::<GtidSet>().is_err());
}

#[test]
fn a_tag_is_another_sequence_of_numbers() {
    let set = set(&format!("{A}:1-5:reports:7"));
    for (gtid, inside) in
        [("5", true), ("7", false), ("reports:7", true), ("reports:5", false), ("sales:7", false)]
    {
        assert_eq!(set.contains(&format!("{A}:{gtid}").parse().unwrap()), inside, "{gtid}");
    }
}

/// Few issuers and small numbers, so that intervals meet.
fn gtid() -> impl Strategy<Value = Gtid> {
    let issuer = prop_oneof![Just(A.to_owned()), Just(B.to_owned()), Just(format!("{A}:reports"))];
    (issuer, 1_u64..40).prop_map(|(issuer, number)| format!("{issuer}:{number}").parse().unwrap())
}

fn gtids() -> impl Strategy<Value = BTreeSet<Gtid>> {
    proptest::collection::btree_set(gtid(), 0..60)
}

fn of(gtids: &BTreeSet<Gtid>) -> GtidSet {
    gtids.iter().copied().collect()
}

proptest! {
    #[test]
    fn a_set_behaves_as_a_plain_set_of_gtids(
        numbers in proptest::collection::vec(gtid(), 0..80),
        ours in gtids(),
        theirs in gtids(),
    ) {
        let plain: BTreeSet<Gtid> = numbers.iter().copied().collect();
        let in_any_order: GtidSet = numbers.iter().copied().collect();
        prop_assert_eq!(&in_any_order, &of(&plain));
        prop_assert_eq!(&set(&in_any_order.to_string()), &in_any_order);

        let (left, right) = (of(&ours), of(&theirs));
        for gtid in plain.iter().chain(&ours).chain(&theirs) {
            prop_assert_eq!(left.contains(gtid), ours.contains(gtid));
        }
        prop_assert_eq!(left.is_subset(&right), ours.is_subset(&theirs));

        let mut union = left.clone();
        union.union(&right);
        prop_assert_eq!(&union, &of(&ours.union(&theirs).copied().collect()));
        prop_assert!(left.is_subset(&union) && right.is_subset(&union));

        let mut rest = left.clone();
        rest.subtract(&right);
        prop_assert_eq!(&rest, &of(&ours.difference(&theirs).copied().collect()));
        prop_assert_eq!(rest.is_empty(), ours.is_subset(&theirs));
    }

    #[test]
    fn no_text_makes_a_set_panic(text in "[0-9a-f:,_ -]{0,80}|.{0,40}") {
        if let Ok(set) = text.parse::<GtidSet>() {
            prop_assert_eq!(set.to_string().parse::<GtidSet>(), Ok(set));
        }
    }
}
