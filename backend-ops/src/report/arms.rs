//! The table of a study's arms, for people.

use crate::judge::study::{Arm, GAIN, MAX_ABS, Path};

/// The table's lines; none where there are no arms.
pub(super) fn lines(arms: &[Arm]) -> Vec<String> {
    if arms.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![format!(
        "{:<18} {:>10} {:>10} {:>10}  {}",
        "", "rms", "max-abs", "tg bytes", "errors for results of rms 1; pipeline"
    )];
    lines.extend(arms.iter().map(line));
    lines.push(format!(
        "bounds: max-abs {MAX_ABS:.0e}; rms of float at least {GAIN} times below half's; f16 weights as float change no bit"
    ));
    lines
}

fn line(arm: &Arm) -> String {
    let (bytes, pipeline) = match (&arm.kernel, arm.path) {
        (Some(kernel), _) => (kernel.threadgroup_bytes.to_string(), &*kernel.pipeline),
        (None, Path::CpuBackend) => ("-".to_owned(), "to compare with: exempt from the bounds"),
        (None, _) => ("-".to_owned(), "not recorded"),
    };
    format!(
        "{:<18} {:>10.3e} {:>10.3e} {bytes:>10}  {pipeline}",
        arm.path.name(),
        arm.rms,
        arm.max_abs
    )
}

#[cfg(test)]
mod tests {
    use ggml_rs::Staging;
    use ggml_rs::trace::Dispatch;

    use super::*;

    #[test]
    fn columns_are_aligned_and_the_cpu_is_exempt() {
        let arm = |path, kernel| Arm {
            path,
            rms: 4.13e-4,
            max_abs: 1.9e-3,
            kernel,
            hash: 0,
        };
        let kernel = Dispatch {
            pipeline: "kernel_mul_mm_id_q4_K_f32".into(),
            threadgroup_bytes: 8192,
        };
        let text = lines(&[
            arm(Path::Staged(Staging::Half), Some(kernel)),
            arm(Path::CpuBackend, None),
        ]);
        assert_eq!(
            text[1],
            "half                 4.130e-4   1.900e-3       8192  kernel_mul_mm_id_q4_K_f32"
        );
        assert_eq!(text[0].find("errors"), text[1].find("kernel"));
        assert!(text[2].starts_with("CPU backend") && text[2].contains("exempt"));
        assert!(lines(&[]).is_empty());
    }
}
