//! Functions whose errors name no line, with the reason.

use std::collections::BTreeSet;

/// Groups of functions, by why.
const WITHOUT: &[(&str, &[&str])] = &[
    (
        "Error::Device names the device and what was attempted with it",
        &[
            "Backend::new",
            "Backend::set_reference",
            "Backend::set_thread_pool",
            "Device::all",
            "Device::best",
            "Device::by_name",
            "Device::cpu",
            "Device::open",
            "Scheduler::best",
        ],
    ),
    (
        "Error::Unsupported names the node, its op, its operands and its device",
        &["Plan::measure", "Plan::new"],
    ),
    (
        "Error::File names the file, and the key or the tensor in it",
        &[
            "Builder::alignment",
            "Builder::begin",
            "Builder::set",
            "Builder::set_all",
            "Gguf::load_into",
            "Gguf::open",
            "Gguf::open_with",
            "Gguf::read",
            "Gguf::read_with",
            "Gguf::read_bytes",
            "Gguf::read_into",
            "Gguf::tensor",
            "Header::tensor",
            "Metadata::find",
            "Metadata::get",
            "SafeTensors::load_into",
            "SafeTensors::open",
            "SafeTensors::read",
            "SafeTensors::read_bytes",
            "SafeTensors::tensor",
            "Writer::finish",
            "Writer::write",
        ],
    ),
    (
        "Error::Train names the option, the data set, the sample, the parameter or the file",
        &[
            "Arrays::classes",
            "Arrays::new",
            "Arrays::subset",
            "Trainer::restore",
            "Trainer::save",
            "Trainer::write_to",
        ],
    ),
    (
        "they can fail for want of memory alone",
        &[
            "Param::zero",
            "Params::zero",
            "RowIds::to_tensor",
            "Tensor::cont",
            "Tensor::dup",
            "Tensor::map_custom1",
            "Tensor::map_custom2",
            "Tensor::map_custom3",
        ],
    ),
    ("whatever the closure returns", &["Builder::checkpoint"]),
    ("names the backward", &["ops::differentiable_ops"]),
];

/// All of them.
pub fn without_a_place() -> BTreeSet<&'static str> {
    let names = WITHOUT.iter().flat_map(|(_, names)| names.iter().copied());
    names.collect()
}
