//! What the f64 interpreter refuses, and whose values it holds.

use ggml_rs::DType::{F16, F32, Q8_0};
use ggml_rs::check::{Interpreter, evaluate};
use ggml_rs::quantize::{dequantize, quantize};
use ggml_rs::{Device, Error, Graph, Params, Tasks};

#[test]
fn an_op_without_a_definition_is_named_with_its_node() {
    let (graph, ()) = Graph::build(|g| {
        let (a, _) = g.input("a", F32, [4])?;
        // A closure has no other definition than itself.
        g.output("turned", a.map_custom1(Tasks::One, |_| {})?)?;
        Ok(())
    })
    .unwrap();
    let error = Interpreter::new(&graph).unwrap_err();
    assert!(matches!(error, Error::Unsupported(_)));
    let text = error.to_string();
    assert!(
        text.contains("MAP_CUSTOM1(a: f32 [4, 1, 1, 1]) [turned]"),
        "{text}"
    );
}

#[test]
fn misuse_is_refused() {
    let build = || {
        Graph::build(|g| {
            let (a, a_in) = g.input("a", F32, [4])?;
            Ok((a_in, g.output("y", a.scale(2.0)?)?))
        })
        .unwrap()
    };
    let (graph, (a, y)) = build();
    let (_other, (foreign, foreign_y)) = build();
    let mut reference = Interpreter::new(&graph).unwrap();
    assert!(matches!(reference.set(&a, &[1.0; 3]), Err(Error::Shape(_))));
    assert!(matches!(
        reference.set(&foreign, &[1.0; 4]),
        Err(Error::Param(_))
    ));
    let unset = reference.run().unwrap_err().to_string();
    assert!(unset.contains("`a` has no values"), "{unset}");
    reference.set(&a, &[1.0, 2.0, 3.0, 4.0]).unwrap();
    assert!(matches!(reference.read(&y), Err(Error::Param(_))));
    reference.run().unwrap();
    assert_eq!(reference.read(&y).unwrap(), [2.0, 4.0, 6.0, 8.0]);
    assert!(matches!(reference.read(&foreign_y), Err(Error::Param(_))));
}

#[test]
fn values_are_rounded_only_where_asked() {
    let (graph, (a, y)) = Graph::build(|g| {
        let (a, a_in) = g.input("a", F16, [32])?;
        Ok((a_in, g.output("y", a.cast(F32)?)?))
    })
    .unwrap();
    let fine = vec![1.0 + 1e-9; 32];
    assert_eq!(evaluate(&graph, &[(&a, &fine)], &y).unwrap(), fine);
    let mut reference = Interpreter::new(&graph).unwrap();
    reference.set_f32(&a, &[1.0001; 32]).unwrap();
    reference.run().unwrap();
    assert_eq!(reference.read(&y).unwrap(), [1.0; 32]);
}

#[test]
fn quantized_inputs_are_read_from_their_bytes() {
    let (graph, (a, y)) = Graph::build(|g| {
        let (a, a_in) = g.input("a", Q8_0, [32])?;
        Ok((a_in, g.output("y", a.cast(F32)?)?))
    })
    .unwrap();
    let values: Vec<f32> = (0..32).map(|i| (i as f32).sin()).collect();
    let bytes = quantize(Q8_0, &values, 32).unwrap();
    let mut reference = Interpreter::new(&graph).unwrap();
    reference.set_bytes(&a, &bytes).unwrap();
    reference.run().unwrap();
    let stored: Vec<f64> = dequantize(Q8_0, &bytes)
        .unwrap()
        .into_iter()
        .map(f64::from)
        .collect();
    assert_eq!(reference.read(&y).unwrap(), stored);
}

#[test]
fn parameters_are_copied_in_and_never_written_back() {
    let params = Params::builder().tensor("w", F32, [3]).unwrap();
    let params = params.allocate(Device::cpu().unwrap()).unwrap();
    let (w, other) = (params.get("w").unwrap(), {
        let other = Params::builder().tensor("other", F32, [3]).unwrap();
        other.allocate(Device::cpu().unwrap()).unwrap()
    });
    let (graph, (a, y)) = Graph::build(|g| {
        let (a, a_in) = g.input("a", F32, [3])?;
        Ok((a_in, g.output("y", a.cpy(g.weight(&w)?)?)?))
    })
    .unwrap();
    let mut unset = Interpreter::new(&graph).unwrap();
    unset.set(&a, &[7.0; 3]).unwrap();
    assert!(
        unset
            .run()
            .unwrap_err()
            .to_string()
            .contains("`w` has no values")
    );
    unset.set_param(&w, &[0.0; 3]).unwrap();
    unset.run().unwrap();

    w.set_f32(&[1.0, 2.0, 3.0]).unwrap();
    let mut reference = Interpreter::new(&graph).unwrap();
    assert_eq!(reference.read_param(&w).unwrap(), [1.0, 2.0, 3.0]);
    reference.set(&a, &[7.0; 3]).unwrap();
    reference.run().unwrap();
    assert_eq!(reference.read(&y).unwrap(), [7.0; 3]);
    assert_eq!(reference.read_param(&w).unwrap(), [7.0; 3]);
    assert_eq!(w.read_f32().unwrap(), [1.0, 2.0, 3.0]);
    let foreign = other.get("other").unwrap();
    assert!(matches!(
        reference.read_param(&foreign),
        Err(Error::Param(_))
    ));
    assert!(matches!(
        reference.set_param(&w, &[1.0]),
        Err(Error::Shape(_))
    ));
}
