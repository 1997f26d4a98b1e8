//! The same steps on two devices.

use ggml_rs::train::Dataset;
use ggml_rs::{Device, Params, Result, Scheduler};

use crate::network::Settings;

/// One step on both.
pub struct Tracked {
    pub loss: f64,
    /// Relative to the loss on the CPU.
    pub loss_difference: f64,
    /// The norm of the difference of all weights, relative to that of the weights on the CPU.
    pub weights_difference: f64,
}

/// What runs a network on `device`: the CPU beside it takes what it cannot run, which on Metal is the cross entropy.
pub fn executor(device: Device, threads: usize) -> Result<Scheduler> {
    let mut cpu = Device::cpu()?.open()?;
    cpu.set_threads(threads)?;
    match device == Device::cpu()? {
        true => Scheduler::new([cpu]),
        false => Scheduler::new([device.open()?, cpu]),
    }
}

/// Makes steps on the CPU and on `device`, from the same weights.
pub fn track(
    settings: &Settings,
    data: &impl Dataset,
    device: Device,
    steps: usize,
) -> Result<Vec<Tracked>> {
    let on = |device| -> Result<_> {
        let executor = executor(device, 1)?;
        let weights = settings.weights(device)?;
        let trainer = settings.trainer(&executor, data, &weights)?;
        Ok((executor, weights, trainer))
    };
    let (mut cpu, cpu_weights, mut on_cpu) = on(Device::cpu()?)?;
    let (mut other, other_weights, mut on_other) = on(device)?;
    let mut tracked = Vec::new();
    while tracked.len() < steps {
        match (on_cpu.step(&mut cpu)?, on_other.step(&mut other)?) {
            (Some(expected), Some(found)) => tracked.push(Tracked {
                loss: expected.loss,
                loss_difference: (found.loss - expected.loss).abs() / expected.loss,
                weights_difference: difference(&cpu_weights, &other_weights)?,
            }),
            _ => {
                on_cpu.end_epoch();
                on_other.end_epoch();
            }
        }
    }
    Ok(tracked)
}

fn difference(expected: &Params, found: &Params) -> Result<f64> {
    let (mut differences, mut squares) = (0.0, 0.0);
    for (expected, found) in expected.iter().zip(found.iter()) {
        for (e, f) in expected.read_f32()?.into_iter().zip(found.read_f32()?) {
            differences += f64::from(e - f).powi(2);
            squares += f64::from(e).powi(2);
        }
    }
    Ok((differences / squares).sqrt())
}
