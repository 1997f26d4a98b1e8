//! How values travel between processes: as JSON, which has neither infinities nor NaN, and knows nothing of ggml-rs's types.

/// By bits.
pub mod f64 {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
        value.to_bits().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        u64::deserialize(from).map(f64::from_bits)
    }
}

/// By bits.
pub mod option_f64 {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(value: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
        value.map(f64::to_bits).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(f64::from_bits))
    }
}

/// As the pipeline's name and its bytes.
pub mod dispatches {
    use ggml_rs::trace::Dispatch;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(all: &[Dispatch], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(all.iter().map(pair))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Dispatch>, D::Error> {
        let pairs = Vec::deserialize(from)?;
        Ok(pairs.into_iter().map(dispatch).collect())
    }

    pub fn pair(dispatch: &Dispatch) -> (&str, usize) {
        (&dispatch.pipeline, dispatch.threadgroup_bytes)
    }

    pub fn dispatch((pipeline, threadgroup_bytes): (String, usize)) -> Dispatch {
        Dispatch {
            pipeline,
            threadgroup_bytes,
        }
    }
}

/// As the pipeline's name and its bytes.
pub mod option_dispatch {
    use ggml_rs::trace::Dispatch;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::dispatches::{dispatch, pair};

    pub fn serialize<S: Serializer>(one: &Option<Dispatch>, to: S) -> Result<S::Ok, S::Error> {
        one.as_ref().map(pair).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Dispatch>, D::Error> {
        Ok(Option::deserialize(from)?.map(dispatch))
    }
}

/// By bits.
pub mod f32 {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(value: &f32, to: S) -> Result<S::Ok, S::Error> {
        value.to_bits().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f32, D::Error> {
        u32::deserialize(from).map(f32::from_bits)
    }
}
