//! The loss curve.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

/// The mean training loss by epoch, on a logarithmic scale.
pub fn draw(path: &Path, losses: &[(u64, f64)]) -> Result<()> {
    let [(first, _), .., (last, _)] = losses else {
        return Err(anyhow!("a curve takes two epochs or more"));
    };
    let low = losses
        .iter()
        .fold(f64::INFINITY, |low, point| low.min(point.1));
    let high = losses
        .iter()
        .fold(0.0, |high: f64, point| high.max(point.1));
    let root = SVGBackend::new(path, (720, 480)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(72)
        .build_cartesian_2d(*first..*last, (low * 0.8..high * 1.25).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("epoch")
        .y_desc("training loss (cross entropy)")
        .y_label_formatter(&|loss| format!("{loss:.1e}"))
        .draw()?;
    chart.draw_series(LineSeries::new(
        losses.iter().copied(),
        BLUE.stroke_width(2),
    ))?;
    root.present()?;
    Ok(())
}
