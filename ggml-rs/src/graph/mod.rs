//! Graphs, built once in a closure.
use crate::{
    dtype::DType,
    error::Result,
    shape::{IntoShape, Shape},
};
use std::marker::PhantomData;
/// A finished graph.
#[derive(Debug)]
pub struct Graph(());
/// Builds a graph inside [`Graph::build`].
#[derive(Debug, Clone, Copy)]
pub struct Builder<'g>(PhantomData<fn(&'g ()) -> &'g ()>);
/// A tensor of the graph under construction.
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'g>(PhantomData<fn(&'g ()) -> &'g ()>);
/// Names an input of a graph after it was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Input(());
/// Names an output of a graph after it was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Output(());
impl Input {
    /// Its data type.
    pub fn dtype(&self) -> DType {
        unimplemented!()
    }
    /// Its shape.
    pub fn shape(&self) -> Shape {
        unimplemented!()
    }
}
impl Output {
    /// Its data type.
    pub fn dtype(&self) -> DType {
        unimplemented!()
    }
    /// Its shape.
    pub fn shape(&self) -> Shape {
        unimplemented!()
    }
}
/// The least precision to which an op may convert an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Precision {
    /// Left to the op.
    Undefined,
    /// f32.
    F32,
    /// bf16.
    Bf16,
    /// f16.
    F16,
    /// 8-bit blocks.
    Q8,
    /// 4-bit blocks.
    Q4,
}
/// How OUT_PROD stages its operands in threadgroup memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Staging {
    /// As f32.
    #[default]
    Float,
    /// As f16: for measurement only, gradients overflow it.
    Half,
}
impl Graph {
    /// Builds a graph: `Graph::build(|g| { let (a, a_in) = g.input("a", DType::F32, [4, 2])?; Ok((a_in, g.output("y", a.relu()?)?)) })`.
    pub fn build<R>(build: impl for<'g> FnOnce(Builder<'g>) -> Result<R>) -> Result<(Graph, R)> {
        let _ = build;
        unimplemented!()
    }
    /// The number of nodes that compute or view.
    pub fn nodes(&self) -> usize {
        unimplemented!()
    }
}
impl<'g> Builder<'g> {
    /// A tensor whose values are set before each run; they persist between runs.
    pub fn input(
        self,
        name: &str,
        dtype: DType,
        shape: impl IntoShape,
    ) -> Result<(Tensor<'g>, Input)> {
        let _ = (name, dtype, shape);
        unimplemented!()
    }
    /// A tensor without values, for `cpy` to write to.
    pub fn empty(self, name: &str, dtype: DType, shape: impl IntoShape) -> Result<Tensor<'g>> {
        let _ = (name, dtype, shape);
        unimplemented!()
    }
    /// Marks a contiguous tensor as a result, which can be read after a run.
    pub fn output(self, name: &str, tensor: Tensor<'g>) -> Result<Output> {
        let _ = (name, tensor);
        unimplemented!()
    }
}
impl<'g> Tensor<'g> {
    /// Its shape.
    pub fn shape(self) -> Shape {
        unimplemented!()
    }
    /// Its data type.
    pub fn dtype(self) -> DType {
        unimplemented!()
    }
    /// Its strides in bytes.
    pub fn strides(self) -> [usize; 4] {
        unimplemented!()
    }
    /// Whether it is contiguous.
    pub fn is_contiguous(self) -> bool {
        unimplemented!()
    }
    /// a.out_prod(b): a [m,k,..], b [n,k,..] -> [m,n,..].
    pub fn out_prod(self, b: Tensor<'g>) -> Result<Tensor<'g>> {
        let _ = b;
        unimplemented!()
    }
    /// a.mul_mat(b): a [k,m,..], b [k,n,..] -> [m,n,..].
    pub fn mul_mat(self, b: Tensor<'g>) -> Result<Tensor<'g>> {
        let _ = b;
        unimplemented!()
    }
    /// Exchanges the first two dimensions (a view).
    pub fn transpose(self) -> Result<Tensor<'g>> {
        unimplemented!()
    }
    /// Dimension i of the tensor becomes dimension axes[i] of the view.
    pub fn permute(self, axes: [usize; 4]) -> Result<Tensor<'g>> {
        let _ = axes;
        unimplemented!()
    }
    /// Another shape of the same elements (a view of a contiguous tensor).
    pub fn reshape(self, shape: impl IntoShape) -> Result<Tensor<'g>> {
        let _ = shape;
        unimplemented!()
    }
    /// A window: shape, strides nb[1..=3] in bytes, offset in bytes from the tensor's first element.
    pub fn view(self, shape: impl IntoShape, nb: [usize; 3], offset: usize) -> Result<Tensor<'g>> {
        let _ = (shape, nb, offset);
        unimplemented!()
    }
    /// A contiguous copy.
    pub fn cont(self) -> Result<Tensor<'g>> {
        unimplemented!()
    }
    /// Copies into `to`, converting; the result is a view of `to`.
    pub fn cpy(self, to: Tensor<'g>) -> Result<Tensor<'g>> {
        let _ = to;
        unimplemented!()
    }
    /// a + b, b repeated to a's shape.
    pub fn add(self, b: Tensor<'g>) -> Result<Tensor<'g>> {
        let _ = b;
        unimplemented!()
    }
    /// a - b, b repeated to a's shape.
    pub fn sub(self, b: Tensor<'g>) -> Result<Tensor<'g>> {
        let _ = b;
        unimplemented!()
    }
    /// a * b element by element, b repeated to a's shape.
    pub fn mul(self, b: Tensor<'g>) -> Result<Tensor<'g>> {
        let _ = b;
        unimplemented!()
    }
    /// a / b element by element, b repeated to a's shape.
    pub fn div(self, b: Tensor<'g>) -> Result<Tensor<'g>> {
        let _ = b;
        unimplemented!()
    }
    /// a * factor.
    pub fn scale(self, factor: f32) -> Result<Tensor<'g>> {
        let _ = factor;
        unimplemented!()
    }
    /// max(a, 0).
    pub fn relu(self) -> Result<Tensor<'g>> {
        unimplemented!()
    }
    /// The sum of all elements, shape [1].
    pub fn sum(self) -> Result<Tensor<'g>> {
        unimplemented!()
    }
    /// Repeats to `shape`.
    pub fn repeat(self, shape: impl IntoShape) -> Result<Tensor<'g>> {
        let _ = shape;
        unimplemented!()
    }
    /// Sets the least precision of operand `source` (0 = a, 1 = b); MUL_MAT takes 1, OUT_PROD 0 and 1.
    pub fn set_src_precision(self, precision: Precision, source: usize) -> Result<Tensor<'g>> {
        let _ = (precision, source);
        unimplemented!()
    }
    /// Sets OUT_PROD's staging on both operands.
    pub fn set_staging(self, staging: Staging) -> Result<Tensor<'g>> {
        let _ = staging;
        unimplemented!()
    }
}
