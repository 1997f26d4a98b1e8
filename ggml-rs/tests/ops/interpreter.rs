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

/// As `Plan::set_i32` refuses them: whatever is no id would be used as one.
#[test]
fn ids_are_checked() {
    let (graph, (table, rows, experts)) = Graph::build(|g| {
        let (table, table_in) = g.input("table", F32, [4, 3])?;
        let (rows, rows_in) = g.row_ids("rows", [2], 3)?;
        let (weights, _) = g.input("weights", F32, [4, 2, 3])?;
        let (x, _) = g.input("x", F32, [4, 1, 2])?;
        let (experts, experts_in) = g.expert_ids("experts", 2, 2, 3)?;
        g.output("taken", table.get_rows(rows)?)?;
        g.output("routed", weights.mul_mat_id(x, experts)?)?;
        Ok((table_in, rows_in, experts_in))
    })
    .unwrap();
    let mut reference = Interpreter::new(&graph).unwrap();
    reference.set(&table, &[f64::NAN; 12]).unwrap();
    for (ids, why) in [
        ([0.0, 3.0], "list 0 names row 3 of 3"),
        ([-1.0, 0.0], "list 0 names row -1 of 3"),
        ([f64::NAN, 0.0], "list 0 names row NaN"),
        ([0.0, 0.5], "list 0 names row 0.5"),
        ([0.0, f64::INFINITY], "list 0 names row inf"),
        ([1e300, 0.0], "list 0 names row 1"),
    ] {
        let error = reference.set(&rows, &ids).unwrap_err();
        assert!(matches!(error, Error::Param(_)), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    assert!(reference.set_i32(&rows, &[0, 3]).is_err());
    assert!(reference.set_bytes(&rows, &[255; 8]).is_err());
    reference.set_i32(&rows, &[2, 0]).unwrap();
    let error = reference.set_i32(&experts, &[0, 1, 2, 2]).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("token 1 names expert 2 twice"), "{text}");
    reference.set_i32(&experts, &[0, 1, 2, 0]).unwrap();
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
