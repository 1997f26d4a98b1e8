//! Data sets: samples of features and labels.

use super::{TrainError, shuffled};
use crate::error::Result;
use crate::memory::zeros;

/// What a data set says when it cannot give a sample.
pub type SampleError = Box<dyn std::error::Error + Send + Sync>;

/// Samples, each of some features and some labels, in ne order.
///
/// All samples have the same dimensions. A model gets them with one more dimension behind, the samples of a batch: 8x8 images
/// come as `[8, 8, n]`.
pub trait Dataset {
    /// How many samples there are. It must not change.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The dimensions of one sample's features: one to three, in ne order.
    fn feature_dims(&self) -> &[usize];

    /// The dimensions of one sample's labels: one to three, in ne order.
    fn label_dims(&self) -> &[usize];

    /// Writes a sample, into zeros. Training can only be repeated if a sample is the same each time.
    ///
    /// # Errors
    /// Whatever keeps it from it, such as a file that is gone: training stops with [`TrainError::Sample`].
    fn sample(
        &self,
        index: usize,
        features: &mut [f32],
        labels: &mut [f32],
    ) -> std::result::Result<(), SampleError>;
}

impl<D: Dataset + ?Sized> Dataset for &D {
    fn len(&self) -> usize {
        (**self).len()
    }

    fn feature_dims(&self) -> &[usize] {
        (**self).feature_dims()
    }

    fn label_dims(&self) -> &[usize] {
        (**self).label_dims()
    }

    fn sample(
        &self,
        index: usize,
        features: &mut [f32],
        labels: &mut [f32],
    ) -> std::result::Result<(), SampleError> {
        (**self).sample(index, features, labels)
    }
}

/// A data set in memory.
///
/// ```
/// use ggml_rs::train::{Arrays, Dataset};
///
/// // Three samples of two features; labels are classes, of which there are two.
/// let data = Arrays::classes(&[2], vec![0.0, 0.1, 1.0, 1.1, 2.0, 2.1], 2, &[0, 1, 1])?;
/// let (mut features, mut labels) = ([0.0; 2], [0.0; 2]);
/// data.sample(1, &mut features, &mut labels).unwrap();
/// assert_eq!((features, labels), ([1.0, 1.1], [0.0, 1.0]));
///
/// let error = Arrays::classes(&[2], vec![0.0; 6], 2, &[0, 1, 2]).unwrap_err();
/// assert!(error.to_string().contains("sample 2 is of class 2"), "{error}");
/// # Ok::<(), ggml_rs::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Arrays {
    len: usize,
    features: Array,
    labels: Array,
}

#[derive(Debug, Clone, PartialEq)]
struct Array {
    dims: Vec<usize>,
    values: Vec<f32>,
}

impl Array {
    fn sample(&self, index: usize) -> &[f32] {
        let size = size(&self.dims);
        &self.values[index * size..(index + 1) * size]
    }
}

impl Arrays {
    /// Samples one after the other, each in ne order.
    ///
    /// # Errors
    /// [`TrainError::Dataset`] for dimensions that no sample can have, and values that are not whole samples, or not as many.
    pub fn new(
        feature_dims: &[usize],
        features: Vec<f32>,
        label_dims: &[usize],
        labels: Vec<f32>,
    ) -> Result<Self> {
        let len = whole_samples("features", feature_dims, features.len())?;
        let labelled = whole_samples("labels", label_dims, labels.len())?;
        if len != labelled {
            return refuse(format!("features of {len} samples, labels of {labelled}"));
        }
        let array = |dims: &[usize], values| Array {
            dims: dims.to_vec(),
            values,
        };
        Ok(Self {
            len,
            features: array(feature_dims, features),
            labels: array(label_dims, labels),
        })
    }

    /// Samples with one class each, 0 to `classes - 1`. As labels they are `classes` values, 1 at the class and else 0.
    ///
    /// # Errors
    /// As [`Arrays::new`]; [`TrainError::Dataset`] for a class that is not one of so many; [`Error::Alloc`](crate::Error::Alloc) for more values than the
    /// host has memory for.
    pub fn classes(
        feature_dims: &[usize],
        features: Vec<f32>,
        classes: usize,
        labels: &[usize],
    ) -> Result<Self> {
        let of_none = labels.iter().position(|&class| class >= classes);
        if let Some(sample) = of_none {
            let class = labels[sample];
            return refuse(format!("sample {sample} is of class {class} of {classes}"));
        }
        let mut one_hot = zeros(classes.saturating_mul(labels.len()), "labels")?;
        for (sample, &class) in labels.iter().enumerate() {
            one_hot[sample * classes + class] = 1.0;
        }
        Self::new(feature_dims, features, &[classes], one_hot)
    }

    /// The samples in their order: features and labels of each.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = (&[f32], &[f32])> {
        (0..self.len).map(|index| (self.features.sample(index), self.labels.sample(index)))
    }

    /// Some of the samples, in this order.
    ///
    /// # Errors
    /// [`TrainError::Dataset`] for an index of no sample.
    pub fn subset(&self, indices: &[usize]) -> Result<Self> {
        if let Some(index) = indices.iter().find(|&&index| index >= self.len) {
            return refuse(format!("sample {index} of {}", self.len));
        }
        let array = |from: &Array| Array {
            dims: from.dims.clone(),
            values: indices
                .iter()
                .flat_map(|&index| from.sample(index))
                .copied()
                .collect(),
        };
        Ok(Self {
            len: indices.len(),
            features: array(&self.features),
            labels: array(&self.labels),
        })
    }
}

impl Dataset for Arrays {
    fn len(&self) -> usize {
        self.len
    }

    fn feature_dims(&self) -> &[usize] {
        &self.features.dims
    }

    fn label_dims(&self) -> &[usize] {
        &self.labels.dims
    }

    fn sample(
        &self,
        index: usize,
        features: &mut [f32],
        labels: &mut [f32],
    ) -> std::result::Result<(), SampleError> {
        if index >= self.len {
            return Err(format!("there are {} samples", self.len).into());
        }
        copy("features", self.features.sample(index), features)?;
        copy("labels", self.labels.sample(index), labels)
    }
}

fn copy(what: &str, from: &[f32], to: &mut [f32]) -> std::result::Result<(), SampleError> {
    if from.len() != to.len() {
        return Err(format!("{} {what}, and room for {}", from.len(), to.len()).into());
    }
    to.copy_from_slice(from);
    Ok(())
}

/// Divides samples in two, with equal parts of each class as far as whole samples go: the places of those that stay, and of the
/// `part` that is held out, 0 to 1. Both are in rising order; which sample goes where is drawn with the seed.
///
/// ```
/// use ggml_rs::train::stratified_split;
///
/// let classes = [0, 0, 0, 0, 0, 1, 1, 1, 1, 1];
/// let (kept, held_out) = stratified_split(&classes, 0.2, 1);
/// assert_eq!((kept.len(), held_out.len()), (8, 2));
/// assert_eq!((classes[held_out[0]], classes[held_out[1]]), (0, 1));
/// ```
#[must_use]
pub fn stratified_split(classes: &[usize], part: f64, seed: u64) -> (Vec<usize>, Vec<usize>) {
    // Sorted by class, and drawn within one: every `1 / part`-th is held out.
    let mut drawn = shuffled(seed, 0, classes.len());
    drawn.sort_by_key(|&sample| classes[sample]);
    let (mut kept, mut held_out) = (Vec::new(), Vec::new());
    for (place, sample) in drawn.into_iter().enumerate() {
        let before = (place as f64 * part) as usize;
        let after = ((place + 1) as f64 * part) as usize;
        match after > before {
            true => held_out.push(sample),
            false => kept.push(sample),
        }
    }
    kept.sort_unstable();
    held_out.sort_unstable();
    (kept, held_out)
}

/// The elements of one sample.
pub(super) fn size(dims: &[usize]) -> usize {
    dims.iter().product()
}

/// # Errors
/// [`TrainError::Dataset`].
pub(super) fn check_dims(what: &str, dims: &[usize]) -> Result<()> {
    let elements = dims.iter().try_fold(1, |n: usize, &dim| n.checked_mul(dim));
    // With the samples of a batch there are four, as many as a tensor has.
    if dims.is_empty() || dims.len() > 3 || elements.is_none_or(|n| n == 0) {
        return refuse(format!(
            "{what} of dimensions {dims:?}: one to three, none of them 0"
        ));
    }
    Ok(())
}

fn whole_samples(what: &str, dims: &[usize], values: usize) -> Result<usize> {
    check_dims(what, dims)?;
    if !values.is_multiple_of(size(dims)) {
        return refuse(format!("{values} {what} are not samples of {dims:?}"));
    }
    Ok(values / size(dims))
}

fn refuse<T>(detail: String) -> Result<T> {
    Err(TrainError::Dataset { detail }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(result: Result<Arrays>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn arrays_that_do_not_fit_are_refused_by_name() {
        for (features, labels, why) in [
            (5, 2, "5 features are not samples of [2]"),
            (4, 5, "5 labels are not samples of [3]"),
            (4, 9, "features of 2 samples, labels of 3"),
        ] {
            let text = message(Arrays::new(
                &[2],
                vec![0.0; features],
                &[3],
                vec![0.0; labels],
            ));
            assert!(text.contains(why), "{text}");
        }
        for dims in [&[][..], &[2, 0], &[1, 1, 1, 1], &[usize::MAX, 2]] {
            let text = message(Arrays::new(dims, vec![], &[1], vec![]));
            assert!(text.contains("one to three, none of them 0"), "{text}");
        }
    }

    #[test]
    fn subsets_keep_features_and_labels_together() {
        let data = Arrays::new(
            &[2],
            (0..6).map(|v| v as f32).collect(),
            &[1],
            vec![0.0, 1.0, 2.0],
        );
        let some = data.unwrap().subset(&[2, 0]).unwrap();
        assert_eq!(some.len(), 2);
        assert_eq!(
            (some.features.sample(0), some.labels.sample(0)),
            (&[4.0, 5.0][..], &[2.0][..])
        );
        assert_eq!(
            (some.features.sample(1), some.labels.sample(1)),
            (&[0.0, 1.0][..], &[0.0][..])
        );
        assert!(message(some.subset(&[2])).contains("sample 2 of 2"));
    }

    #[test]
    fn a_split_is_of_all_samples_and_of_each_class() {
        let classes: Vec<usize> = (0..1000).map(|i| i * 7 % 10).collect();
        let (kept, held_out) = stratified_split(&classes, 0.2, 3);
        assert_eq!(held_out.len(), 200);
        let mut all = [kept, held_out.clone()].concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..1000));
        for class in 0..10 {
            let count = held_out.iter().filter(|&&i| classes[i] == class).count();
            assert_eq!(count, 20);
        }
        assert_ne!(held_out, stratified_split(&classes, 0.2, 4).1);
    }
}
