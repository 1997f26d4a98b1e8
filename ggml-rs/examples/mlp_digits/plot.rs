//! The loss curve.

use std::path::Path;

use anyhow::{Result, anyhow};
use ggml_rs::train::EpochReport;
use plotters::prelude::*;

/// The mean losses of epochs on a logarithmic scale: of training, and of validation where there is one.
pub fn draw(path: &Path, epochs: &[EpochReport]) -> Result<()> {
    let (Some(first), Some(last)) = (epochs.first(), epochs.last()) else {
        return Err(anyhow!("a curve takes an epoch"));
    };
    let training = curve(epochs, |report| Some(report.loss));
    let validation = curve(epochs, |report| Some(report.validation?.loss.value));
    let losses = || training.iter().chain(&validation).map(|point| point.1);
    let (low, high) = (losses().fold(1.0, f64::min), losses().fold(0.0, f64::max));

    let root = SVGBackend::new(path, (720, 480)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("mlp_digits: loss by epoch", ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(
            // One epoch has a width too.
            first.epoch + 1..(last.epoch + 1).max(first.epoch + 2),
            (decade(low)..high * 1.25).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("epoch")
        .y_desc("cross entropy, mean of the samples")
        .y_label_formatter(&|loss| one_digit(*loss))
        .label_style(("sans-serif", 13))
        .axis_desc_style(("sans-serif", 15))
        .draw()?;
    for (name, colour, points) in [
        ("training, as each step began", BLUE, training),
        ("validation, after the epoch", RED, validation),
    ] {
        if points.is_empty() {
            continue;
        }
        let style = colour.filled().stroke_width(2);
        chart
            .draw_series(LineSeries::new(points, style).point_size(2))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .label_font(("sans-serif", 14))
        .background_style(WHITE)
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}

/// Epochs from 1, and what is above zero of them: nothing else has a place on the scale.
fn curve(epochs: &[EpochReport], loss: impl Fn(&EpochReport) -> Option<f64>) -> Vec<(u64, f64)> {
    let points = epochs
        .iter()
        .filter_map(|report| Some((report.epoch + 1, loss(report)?)));
    points.filter(|point| point.1 > 0.0).collect()
}

/// A little below the power of ten that a number has below it. Powers of ten are labelled, so that there is one where the scale begins.
fn decade(number: f64) -> f64 {
    0.999 * 10_f64.powf(number.log10().floor())
}

/// A number in decimals, as far as its first digit.
fn one_digit(number: f64) -> String {
    let digits = (-number.log10().floor()).max(0.0) as usize;
    format!("{number:.digits$}")
}
