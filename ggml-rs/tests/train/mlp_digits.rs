//! Example `mlp_digits`: its data, and its steps on the simulated Metal device.

use clap::Parser;
use ggml_rs::Device;
use ggml_rs::train::{Arrays, Dataset, Task};

use crate::digits::{self, SIDE};
use crate::network::Settings;
use crate::track::{self, Tracked};

/// The example's defaults.
fn settings() -> Settings {
    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        settings: Settings,
    }
    Cli::parse_from(["mlp_digits"]).settings
}

#[test]
fn the_data_is_divided_without_overlap() {
    let sample = |(pixels, label): (&[f32], &[f32])| {
        let class = label.iter().position(|&p| p == 1.0).unwrap();
        let pixels: Vec<_> = pixels.iter().map(|p| (p * 16.0) as u8).collect();
        (pixels, class)
    };
    let all = |data: &Arrays| data.samples().map(sample).collect::<Vec<_>>();
    let (judged, validated) = (digits::load(false).unwrap(), digits::load(true).unwrap());
    let [train, held_out] = [&judged.train, &judged.judge].map(all);
    assert_eq!((train.len(), held_out.len()), (1438, 359));
    let [kept, aside] = [&validated.train, &validated.judge].map(all);
    // What validates comes from the training part, so the digits held out were never seen when something was chosen.
    let mut again = [kept, aside.clone()].concat();
    let mut expected = train.clone();
    again.sort_unstable();
    expected.sort_unstable();
    assert!(again == expected && aside.len() == 287);
    for class in 0..10 {
        let count = |part: &[(Vec<u8>, usize)]| part.iter().filter(|s| s.1 == class).count();
        assert!(
            count(&train).abs_diff(4 * count(&held_out)) <= 5,
            "digit {class}"
        );
    }
    assert!(
        train
            .iter()
            .all(|(pixels, _)| pixels.iter().all(|&p| p <= 16))
    );
}

#[test]
fn images_move_by_a_pixel() {
    let data = digits::load(false).unwrap().train;
    let (image, label) = data.samples().nth(3).unwrap();
    let moved = digits::moved(&data).unwrap();
    for (version, (right, down)) in [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]
        .into_iter()
        .enumerate()
    {
        let place = version * data.len() + 3;
        let (found, moved_label) = moved.samples().nth(place).unwrap();
        assert_eq!(label, moved_label);
        let side = SIDE as i32;
        for (y, x) in (0..side).flat_map(|y| (0..side).map(move |x| (y, x))) {
            let (from_x, from_y) = (x - right, y - down);
            let inside = (0..side).contains(&from_x) && (0..side).contains(&from_y);
            let expected = if inside {
                image[(from_y * side + from_x) as usize]
            } else {
                0.0
            };
            assert_eq!(found[(y * side + x) as usize], expected);
        }
    }
}

#[test]
fn steps_on_the_metal_device_track_the_cpu() {
    let data = digits::moved(&digits::load(false).unwrap().train).unwrap();
    let device = Device::by_name("MTL0").unwrap();
    let tracked = track::track(&settings(), &data, device, 5).unwrap();
    assert_eq!(tracked.len(), 5);
    for Tracked {
        loss,
        loss_difference,
        weights_difference,
    } in &tracked
    {
        // Sums of some hundred products in another order.
        assert!(*loss_difference < LOSS, "{loss_difference} of {loss}");
        assert!(*weights_difference < WEIGHTS, "{weights_difference}");
    }
    // Otherwise the CPU was compared with itself.
    assert!(tracked[4].weights_difference > 0.0);
}
/// Half staging is beyond both.
const LOSS: f64 = 5e-6;
const WEIGHTS: f64 = 2e-6;

/// A few epochs are enough to read most digits; the example's own run, in CI, must read 97 of 100.
#[test]
fn a_short_run_reads_most_digits() {
    let settings = Settings {
        epochs: 10,
        ..settings()
    };
    let data = digits::load(false).unwrap();
    let moved = digits::moved(&data.train).unwrap();
    let cpu = Device::cpu().unwrap();
    let mut executor = track::executor(cpu, 1).unwrap();
    let weights = settings.weights(cpu).unwrap();
    let mut trainer = settings.trainer(&executor, &moved, &weights).unwrap();
    trainer
        .fit(&mut executor, ggml_rs::train::Fit::epochs(10))
        .unwrap();
    let found = trainer
        .evaluate(&mut executor, &data.judge, Task::Classify)
        .unwrap();
    let accuracy = found.accuracy.unwrap();
    assert!(accuracy.value() > 0.9, "{accuracy}");
}
