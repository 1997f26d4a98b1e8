//! Patches to the Metal device's own file. It is Objective-C, which only a Mac compiles: read it instead.

use std::{fs, path::Path};

/// The patched source that a Mac compiles.
fn source() -> String {
    let out_dir = Path::new(env!("GGML_SYS_OUT_DIR"));
    fs::read_to_string(out_dir.join("ggml/src/ggml-metal/ggml-metal-device.m")).unwrap()
}

/// The body of a function that is defined at the start of a line.
fn body<'t>(text: &'t str, name: &str) -> &'t str {
    let at = text
        .find(&format!(" {name}("))
        .filter(|&at| text[at..].lines().next().unwrap().ends_with('{'))
        .unwrap_or_else(|| panic!("{name} is not defined"));
    let end = text[at..].find("\n}\n").expect("the function ends");
    &text[at..at + end]
}

/// `parts` stand in `text`, one after the other.
fn in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let at = rest
            .find(part)
            .unwrap_or_else(|| panic!("{part:?} is missing, or stands earlier, in\n{text}"));
        rest = &rest[at + part.len()..];
    }
}

/// `ggml_metal_rsets_free` asserts that no buffer is left, and is called by a static destructor.
#[test]
fn a_device_with_live_buffers_is_left_alone_at_exit() {
    let text = source();
    let free = body(&text, "ggml_metal_device_free");
    in_order(
        free,
        &[
            "if (ggml_metal_rsets_stop(dev->rsets) > 0) {",
            "return;",
            "}",
            "ggml_metal_fusion_info_free(dev->finfo);",
            "ggml_metal_rsets_free(dev->rsets);",
            "free(dev);",
        ],
    );
    // Whoever calls it elsewhere meets the assertion again.
    assert_eq!(text.matches("ggml_metal_rsets_free(").count(), 2);
}

/// The heartbeat's block reads the collection, and its code may be unloaded with the backend.
#[test]
fn the_heartbeat_ends_before_live_buffers_are_counted() {
    let text = source();
    in_order(
        body(&text, "ggml_metal_rsets_stop"),
        &[
            "if (rsets == NULL) {",
            "return 0;",
            "atomic_store_explicit(&rsets->d_stop, true",
            "dispatch_group_wait(rsets->d_group, DISPATCH_TIME_FOREVER);",
            "[rsets->lock lock];",
            "[rsets->data count];",
            "[rsets->lock unlock];",
            "return n;",
        ],
    );
}

/// `NSMakeRange` takes a length. Given an end, it fills what lies behind the tensor.
#[test]
fn a_tensor_is_filled_for_its_length() {
    let text = source();
    let fill = body(&text, "ggml_metal_buffer_memset_tensor");
    in_order(
        fill,
        &["fillBuffer:", "range:NSMakeRange(bid_dst.offs, size)"],
    );
}
