//! What a finished graph keeps, and what of it ggml has to be given.

use std::ffi::c_char;
use std::ptr::NonNull;

use ggml_sys as sys;

use crate::graph::node;

type Pointer = NonNull<sys::ggml_tensor>;

/// Marks in tensors' flags of what is needed, while they stand. A set of addresses would take longer than ggml takes to make
/// the tensors.
pub(super) struct Marks<'t> {
    /// In the order of creation.
    tensors: &'t [Pointer],
}

impl<'t> Marks<'t> {
    // Bits that ggml does not use.
    /// Something needed has the tensor as an operand.
    const READ: i32 = 1 << 30;
    /// The tensor is asked for, or lends its memory to something needed.
    const ASKED: i32 = 1 << 29;
    /// The needed node that was made next has the tensor as an operand, and is not too many such steps from the end of them.
    const FOLLOWED: i32 = 1 << 28;
    const ALL: i32 = Self::READ | Self::ASKED | Self::FOLLOWED;
    /// A leaf whose memory outlives a run. Only while the marks are set.
    const LASTS: i32 = 1 << 27;

    /// How many nodes ggml may walk along in one call, which takes a frame of the stack for each.
    const LONGEST: usize = 64;

    /// Marks `roots`, every node that writes to one of the leaves `lasting`, whose memory outlives a run, and everything that
    /// these depend on.
    pub fn of_needed<'a>(
        tensors: &'t [Pointer],
        roots: impl Iterator<Item = &'a Pointer>,
        lasting: impl Iterator<Item = &'a Pointer> + Clone,
    ) -> Self {
        let mark = |tensor: *mut sys::ggml_tensor, bit: i32| {
            // SAFETY: all tensors of the builder are alive, and no other thread has them yet.
            unsafe { (*tensor).flags |= bit };
        };
        let marks = Self { tensors };
        roots.for_each(|root| mark(root.as_ptr(), Self::ASKED));
        lasting
            .clone()
            .for_each(|leaf| mark(leaf.as_ptr(), Self::LASTS));
        // The needed node that was made after the one looked at, and its steps from the end.
        let mut next: Option<(Pointer, usize)> = None;
        // Backwards, so that all that need a tensor come before it.
        for &tensor in tensors.iter().rev() {
            if !marks.is_needed(tensor) {
                if !writes_what_lasts(tensor) {
                    continue;
                }
                mark(tensor.as_ptr(), Self::ASKED);
            }
            // SAFETY: as above; no tensor is its own source.
            let node = unsafe { tensor.as_ref() };
            for &source in node.src.iter().filter(|source| !source.is_null()) {
                mark(source, Self::READ);
            }
            if !node.view_src.is_null() {
                mark(node.view_src, Self::ASKED);
            }
            if is_leaf(node) {
                continue;
            }
            let steps = match next {
                Some((next, steps)) if steps < Self::LONGEST && reads(next, tensor) => {
                    mark(tensor.as_ptr(), Self::FOLLOWED);
                    steps + 1
                }
                _ => 0,
            };
            next = Some((tensor, steps));
        }
        for leaf in lasting {
            // SAFETY: as above.
            unsafe { (*leaf.as_ptr()).flags &= !Self::LASTS };
        }
        marks
    }

    fn flags(tensor: Pointer) -> i32 {
        // SAFETY: all tensors of the builder are alive.
        unsafe { tensor.as_ref() }.flags
    }

    pub fn is_needed(&self, tensor: Pointer) -> bool {
        Self::flags(tensor) & (Self::READ | Self::ASKED) != 0
    }

    /// Takes the marks off. Gives what is needed, in the order of creation, and those of it that ggml has to be given to find
    /// the rest, in that order.
    ///
    /// ggml walks from a node to its operands, and appends each node behind them. What it is given after a node whose
    /// operands it has all met appends that node alone. So a node may be left to the one that was made next, if that has it
    /// as an operand: everything made before both was met already, and the two are appended in their order. A leaf, which
    /// ggml keeps apart from the nodes, may be left to whatever has it as an operand.
    pub fn needed_and_ends(self) -> (Vec<Pointer>, Vec<Pointer>) {
        let mut needed = Vec::with_capacity(self.tensors.len());
        let mut ends = Vec::with_capacity(self.tensors.len());
        let mut names = NodeNames::new();
        for &tensor in self.tensors {
            // SAFETY: all tensors of the builder are alive, and no other thread has them yet.
            let node = unsafe { &mut *tensor.as_ptr() };
            let marks = node.flags & Self::ALL;
            if marks == 0 {
                continue;
            }
            node.flags &= !Self::ALL;
            needed.push(tensor);
            let is_met = match is_leaf(node) {
                true => Self::READ,
                false => {
                    names.give(node);
                    Self::FOLLOWED
                }
            };
            if marks & is_met == 0 {
                ends.push(tensor);
            }
        }
        (needed, ends)
    }
}

/// The names that ggml gives nodes without one, for their places among the nodes: its printf takes as long as making the node.
pub(in crate::graph) struct NodeNames {
    /// The name of the place that comes next.
    next: [c_char; Self::LEN],
    /// Where its digits end.
    end: usize,
}

impl NodeNames {
    const PREFIX: &[u8] = b"node_";
    /// Room for the digits of any place, and a NUL.
    const LEN: usize = 32;

    pub fn new() -> Self {
        let mut next = [0; Self::LEN];
        let first = Self::PREFIX.iter().chain(b"0");
        for (stored, &byte) in next.iter_mut().zip(first) {
            *stored = byte as c_char;
        }
        let end = Self::PREFIX.len() + 1;
        Self { next, end }
    }

    /// Names the node of the next place, unless it has a name.
    pub fn give(&mut self, node: &mut sys::ggml_tensor) {
        if node.name[0] == 0 {
            node.name[..Self::LEN].copy_from_slice(&self.next);
        }
        self.count();
    }

    /// Adds one to the number in the name.
    fn count(&mut self) {
        const NINE: c_char = b'9' as c_char;
        for digit in self.next[Self::PREFIX.len()..self.end].iter_mut().rev() {
            if *digit != NINE {
                *digit += 1;
                return;
            }
            *digit = b'0' as c_char;
        }
        // All were nines, and are zeros.
        self.next[Self::PREFIX.len()] = b'1' as c_char;
        self.next[self.end] = b'0' as c_char;
        self.end += 1;
    }
}

/// Whether a node writes to memory that is marked to outlive a run.
fn writes_what_lasts(tensor: Pointer) -> bool {
    // SAFETY: all tensors of the builder are alive, and so are their operands and what they are views of.
    let node = unsafe { tensor.as_ref() };
    // Every write is into what the result is a view of, that of AdamW, which has more, too.
    if node.view_src.is_null() {
        return false;
    }
    // SAFETY: as above.
    let written = unsafe { node::written(tensor) };
    written
        .into_iter()
        .any(|base| Marks::flags(base) & Marks::LASTS != 0)
}

/// Whether ggml keeps a tensor apart from the nodes, whose order is that of the run.
pub(in crate::graph) fn is_leaf(tensor: &sys::ggml_tensor) -> bool {
    tensor.op == sys::GGML_OP_NONE && tensor.flags & sys::GGML_TENSOR_FLAG_PARAM == 0
}

/// Whether a node has a tensor as an operand.
fn reads(node: Pointer, tensor: Pointer) -> bool {
    // SAFETY: all tensors of the builder are alive.
    unsafe { node.as_ref() }.src.contains(&tensor.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::graph::{Graph, expand};

    /// What is in the cgraph, in its order, with its name.
    fn nodes(cgraph: NonNull<sys::ggml_cgraph>) -> Vec<(Pointer, String)> {
        // SAFETY: the caller's graph is alive, and every index is below the count.
        unsafe {
            (0..sys::ggml_graph_n_nodes(cgraph.as_ptr()))
                .map(|i| NonNull::new(sys::ggml_graph_node(cgraph.as_ptr(), i)).unwrap())
                .map(|tensor| (tensor, node::name(tensor)))
                .collect()
        }
    }

    /// Compares with ggml's own names, and with its order where it is given one tensor after the other.
    fn check(graph: &Graph) {
        let found = nodes(graph.cgraph());
        for &tensor in graph.tensors() {
            // SAFETY: graph and tensor are alive. Inputs have names of their own; ggml looks among leaves and nodes.
            let (is_leaf, named) = unsafe {
                let name = sys::ggml_get_name(tensor.as_ptr());
                let named = sys::ggml_graph_get_tensor(graph.cgraph().as_ptr(), name);
                (is_leaf(tensor.as_ref()), named)
            };
            assert!(!is_leaf || named == tensor.as_ptr());
            // SAFETY: the graph keeps its tensors alive, and no other thread has them.
            let tensor = unsafe { &mut *tensor.as_ptr() };
            assert_eq!(tensor.flags & Marks::ALL, 0);
            if tensor
                .name
                .starts_with(&b"node_".map(|byte| byte as c_char))
            {
                tensor.name = [0; sys::GGML_MAX_NAME as usize];
            }
        }
        let (_context, cgraph) = expand(graph.tensors()).unwrap();
        assert_eq!(found, nodes(cgraph));
    }

    #[test]
    fn chains_are_left_to_their_ends_in_the_order_and_by_the_names_of_ggml() {
        let (graph, _) = Graph::build(|g| {
            let (x, _) = g.input("x", DType::F32, [4])?;
            let mut chain = x;
            // Three digits and four, and more steps than ggml may walk in one call.
            for _ in 0..1200 {
                chain = chain.neg()?;
            }
            g.output("y", chain)
        })
        .unwrap();
        check(&graph);
        let (x, last) = (graph.tensors()[0], graph.tensors()[1200]);
        let marks = Marks::of_needed(graph.tensors(), [last].iter(), [x].iter());
        assert!(marks.is_needed(x));
        let (needed, ends) = marks.needed_and_ends();
        assert_eq!(needed, graph.tensors());
        assert_eq!(ends.len(), 1200_usize.div_ceil(Marks::LONGEST + 1));
    }

    #[test]
    fn nodes_run_as_written_whatever_depends_on_what() {
        let mut state = 1_u32;
        let mut below = |n: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % n
        };
        for _ in 0..50 {
            let (graph, inputs) = Graph::build(|g| {
                let mut made = vec![g.input("x", DType::F32, [4])?.0];
                let mut inputs = 1;
                for i in 0..150 {
                    // Mostly on what was made last, so that there are chains.
                    let recent = made.len() - 1 - below(made.len().min(3));
                    let (a, b) = (made[recent], made[below(made.len())]);
                    made.push(match below(8) {
                        0 => {
                            inputs += 1;
                            g.input(&format!("x{i}"), DType::F32, [4])?.0
                        }
                        1 => b.sub(a)?,
                        2 => a.add(b)?.named(&format!("sum {i}"))?,
                        3 => a.reshape([2, 2])?.reshape([4])?,
                        4 => a.scale_inplace(2.0)?,
                        5 => a.add_inplace(a)?,
                        6 => {
                            inputs += 1;
                            g.input(&format!("p{i}"), DType::F32, [4])?.0.set_param()?
                        }
                        _ => a.neg()?,
                    });
                }
                let outputs = [made[below(made.len())], made[made.len() - 1]];
                for (name, tensor) in ["y", "z"].into_iter().zip(outputs) {
                    g.output(name, tensor.neg()?)?;
                }
                Ok(inputs)
            })
            .unwrap();
            assert_eq!(graph.needed_inputs().len(), inputs);
            check(&graph);
        }
    }
}
