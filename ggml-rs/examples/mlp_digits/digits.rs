//! The digits: where they come from, and how they are divided.
//!
//! E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository (1998), licensed CC BY 4.0:
//! the 1797 digits of its test part, 8x8 pixels of 0 to 16. Crate `smartcore` (Apache-2.0) carries them.

use ggml_rs::Result;
use ggml_rs::train::{Arrays, stratified_split};
use smartcore::dataset::digits;

/// The side of an image.
pub const SIDE: usize = 8;
pub const PIXELS: usize = SIDE * SIDE;
pub const CLASSES: usize = 10;
/// Which digits are held out does not depend on how a run is seeded.
const SPLIT_SEED: u64 = 1;

/// Digits for training, and digits that only judge.
pub struct Split {
    pub train: Arrays,
    pub judge: Arrays,
}

/// A fifth of each digit is held out. With `validate` that fifth stays aside, and a fifth of the rest judges.
pub fn load(validate: bool) -> Result<Split> {
    let all = digits::load_dataset();
    assert_eq!(
        (all.num_samples, all.num_features),
        (1797, PIXELS),
        "the data set is another"
    );
    let classes: Vec<usize> = all.target.iter().map(|&digit| digit as usize).collect();
    let pixels = all.data.iter().map(|pixel| pixel / 16.0).collect();
    let digits = Arrays::classes(&[SIDE, SIDE], pixels, CLASSES, &classes)?;

    let (train, held_out) = stratified_split(&classes, 0.2, SPLIT_SEED);
    let (train, judge) = match validate {
        false => (train, held_out),
        true => {
            let of_train: Vec<_> = train.iter().map(|&sample| classes[sample]).collect();
            let (kept, aside) = stratified_split(&of_train, 0.2, SPLIT_SEED);
            let [kept, aside] = [kept, aside].map(|part| {
                part.into_iter()
                    .map(|place| train[place])
                    .collect::<Vec<_>>()
            });
            (kept, aside)
        }
    };
    Ok(Split {
        train: digits.subset(&train)?,
        judge: digits.subset(&judge)?,
    })
}

/// Every image five times: as it is, and moved by one pixel to each side. Whoever writes the same digit again does not hit the same
/// pixels.
pub fn moved(digits: &Arrays) -> Result<Arrays> {
    /// To the right and down.
    const MOVES: [(isize, isize); 5] = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)];
    let (mut images, mut labels) = (Vec::new(), Vec::new());
    for (right, down) in MOVES {
        for (image, label) in digits.samples() {
            let at = |place: usize, by: isize| place.checked_add_signed(-by).filter(|&p| p < SIDE);
            images.extend((0..PIXELS).map(|place| {
                match (at(place % SIDE, right), at(place / SIDE, down)) {
                    (Some(x), Some(y)) => image[y * SIDE + x],
                    _ => 0.0,
                }
            }));
            labels.extend_from_slice(label);
        }
    }
    Arrays::new(&[SIDE, SIDE], images, &[CLASSES], labels)
}
