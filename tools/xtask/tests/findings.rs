//! The tables of faults are what the series says.

use xtask::findings;

#[test]
fn the_tables_are_what_the_series_says() {
    for page in findings::pages().unwrap() {
        if let Some(difference) = page.difference().unwrap() {
            panic!("{difference}");
        }
    }
}
