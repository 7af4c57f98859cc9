use super::*;

fn printed(number: f64) -> String {
    Document::Double(number).to_text().unwrap().to_string()
}

#[test]
fn doubles_are_printed_in_the_server_s_forms() {
    for (number, text) in [
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (1e14, "100000000000000.0"),
        (1e15, "1e15"),
        (1_234_567_890_123_456.7, "1234567890123456.8"),
        (9_999_999_999_999_998.0, "9.999999999999998e15"),
        (1e-15, "0.000000000000001"),
        (1e-16, "1e-16"),
        (1.7976931348623157e308, "1.7976931348623157e308"),
        (5e-324, "5e-324"),
        (1.5e-7, "0.00000015"),
        // Halfway between two decimals of 17 digits, both of which read back.
        (f64::from_bits(0x431a_ae6b_20a3_8c3d), "1877531131699983.2"),
    ] {
        assert_eq!(printed(number), text);
    }
}

#[test]
fn base64_is_padded_and_broken_into_lines_as_the_server_does() {
    let opaque =
        |bytes: &[u8]| Document::Opaque { code: 15, bytes }.to_text().map(|text| text.to_string());
    assert_eq!(opaque(&[0, 255, 16]), Ok("\"base64:type15:AP8Q\"".into()));
    assert_eq!(opaque(&[0, 255]), Ok("\"base64:type15:AP8=\"".into()));
    assert_eq!(opaque(&[5]), Ok("\"base64:type15:BQ==\"".into()));
    assert_eq!(opaque(&[]), Ok("\"base64:type15:\"".into()));
    let line = "eHh4".repeat(19);
    assert_eq!(opaque(&[b'x'; 57]), Ok(format!("\"base64:type15:{line}\"")));
    assert_eq!(opaque(&[b'x'; 60]), Ok(format!("\"base64:type15:{line}\\neHh4\"")));
}

#[test]
fn a_document_that_points_at_itself_is_refused() {
    // An array of one element, which is an array at the same place.
    let own_self = [2, 1, 0, 7, 0, 2, 0, 0];
    assert!(Document::parse(&own_self).is_err());
    // Elements that share one long string cost their length each.
    let mut shared = vec![2, 200, 0, 0xff, 0x03];
    for _ in 0..200 {
        shared.extend([12, 0x5c, 0x02]);
    }
    shared.push(100);
    shared.resize(1 + 0x3ff, b'x');
    assert_eq!(Document::parse(&shared), Err(Invalid::Malformed));
}
