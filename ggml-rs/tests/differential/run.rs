//! The ways in which a graph is computed.

use ggml_rs::{
    Backend, Cancel, Device, Error, Executor, Fallback, Placement, Plan, PlanOptions, Scheduler,
};

use crate::common::{traced, until};
use crate::op::Make;
use crate::program::{Built, Program};
use crate::reference::Bytes;
use crate::rounding::On;

/// What computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// With so many threads.
    Cpu(usize),
    Metal,
    /// Metal and the CPU.
    Both,
}

/// How a plan is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Once,
    Cancellable,
    Traced,
    /// Twice, with leaves set again; and a third time with leaves left as they are, where nothing writes to them.
    Again,
}

/// One way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    pub device: Target,
    pub separate: bool,
    pub how: How,
    /// One seed of so many runs this way: threads wait for each other busily, which takes long where they are more than cores.
    pub every: u64,
}

/// What a run gave.
pub enum Ran {
    Done {
        bytes: Bytes,
        /// How many runs of nodes on one device there were.
        splits: usize,
    },
    /// The device does not run the op.
    Refused(String),
    /// What is wrong.
    Wrong(String),
}

const SENTINELS: usize = 256;

impl Way {
    const fn new(device: Target, separate: bool, how: How) -> Self {
        Self {
            device,
            separate,
            how,
            every: 1,
        }
    }

    const fn every(mut self, every: u64) -> Self {
        self.every = every;
        self
    }

    /// What a person calls it, without spaces.
    pub fn name(&self) -> String {
        let device = match self.device {
            Target::Cpu(threads) => format!("CPU-{threads}-threads"),
            Target::Metal => "MTL0".to_owned(),
            Target::Both => "MTL0+CPU".to_owned(),
        };
        let placement = if self.separate { "separate" } else { "pooled" };
        let how = match self.how {
            How::Once => "",
            How::Cancellable => ",cancellable",
            How::Traced => ",traced",
            How::Again => ",again",
        };
        format!("{device},{placement}{how}")
    }

    /// Whose bits must agree.
    pub fn kind(&self) -> &'static str {
        match self.device {
            Target::Cpu(_) => "CPU",
            Target::Metal => "MTL0",
            Target::Both => "MTL0+CPU",
        }
    }

    pub fn is_both(&self) -> bool {
        self.device == Target::Both
    }

    /// Whether backends fuse the same nodes in both ways.
    pub fn like(&self, other: Self) -> bool {
        let parts = |way: &Self| way.how == How::Cancellable;
        self.kind() == other.kind()
            && self.separate == other.separate
            && parts(self) == parts(&other)
    }

    pub fn rounds(&self) -> On {
        match self.device {
            Target::Cpu(_) => On::Cpu,
            Target::Metal => On::Metal,
            Target::Both => On::Either,
        }
    }
}

/// Set where the simulated device cannot run: valgrind does not follow its stacks.
const CPU_ONLY: &str = "GGML_RS_GRAPHS_ON_CPU";

/// Every way of a process: the CPU's are the same in every order of the simulated device.
pub fn ways(first_order: bool) -> Vec<Way> {
    use How::{Again, Cancellable, Once, Traced};
    use Target::{Both, Cpu, Metal};
    let mut ways = Vec::new();
    if first_order {
        ways.extend([
            Way::new(Cpu(1), false, Once),
            Way::new(Cpu(1), true, Traced),
            Way::new(Cpu(1), false, Cancellable),
            Way::new(Cpu(1), false, Again),
            Way::new(Cpu(2), true, Once).every(2),
            Way::new(Cpu(3), false, Once).every(4),
            Way::new(Cpu(5), false, Cancellable).every(16),
        ]);
    }
    let simulated = cfg!(all(feature = "metal-sim", not(target_os = "macos")));
    if !simulated || std::env::var_os(CPU_ONLY).is_some() {
        return ways;
    }
    ways.extend([
        Way::new(Metal, false, Once),
        Way::new(Metal, true, Once),
        Way::new(Both, false, Once),
    ]);
    if first_order {
        ways.extend([
            Way::new(Metal, false, Cancellable),
            Way::new(Metal, true, Traced),
            Way::new(Metal, false, Again),
            Way::new(Both, true, Once),
        ]);
    }
    ways
}

/// The backends of a process.
pub struct Backends {
    cpu: Vec<(usize, Backend)>,
    metal: Option<(Backend, Scheduler)>,
}

impl Backends {
    pub fn new(ways: &[Way]) -> ggml_rs::Result<Self> {
        let open = |threads: usize| {
            let mut backend = Device::cpu()?.open()?;
            backend.set_threads(threads)?;
            Ok::<_, Error>(backend)
        };
        let mut cpu: Vec<(usize, Backend)> = Vec::new();
        for way in ways {
            if let Target::Cpu(threads) = way.device
                && cpu.iter().all(|&(other, _)| other != threads)
            {
                cpu.push((threads, open(threads)?));
            }
        }
        let metal = match ways.iter().any(|way| way.device == Target::Metal) {
            true => {
                let device = Device::by_name("MTL0")?;
                let both = Scheduler::new([device.open()?, open(2)?])?;
                Some((device.open()?, both.with_fallback(Fallback::Allow)))
            }
            false => None,
        };
        Ok(Self { cpu, metal })
    }

    /// Computes a program in one way.
    pub fn run(&mut self, program: &Program, way: Way) -> Ran {
        let device = match way.device {
            Target::Cpu(_) => Device::cpu(),
            Target::Metal | Target::Both => Device::by_name("MTL0"),
        };
        let built = match device.and_then(|device| program.build(device)) {
            Ok(built) => built,
            Err(error) => return Ran::Wrong(format!("build: {error}")),
        };
        match (way.device, &mut self.metal) {
            (Target::Cpu(threads), _) => {
                let found = self.cpu.iter_mut().find(|(other, _)| *other == threads);
                let (_, backend) = found.expect("backends were opened for every way");
                on(program, built, backend, way)
            }
            (Target::Metal, Some((backend, _))) => on(program, built, backend, way),
            (Target::Both, Some((_, scheduler))) => on(program, built, scheduler, way),
            (_, None) => Ran::Refused("no-device".to_owned()),
        }
    }
}

fn on(program: &Program, built: Built, on: &mut impl Executor, way: Way) -> Ran {
    match try_on(program, built, on, way) {
        Ok(ran) => ran,
        Err(Error::Unsupported(unsupported)) => {
            Ran::Refused(format!("{}:{}", unsupported.device, unsupported.op))
        }
        Err(error) => Ran::Wrong(error.to_string()),
    }
}

fn try_on(
    program: &Program,
    built: Built,
    on: &mut impl Executor,
    way: Way,
) -> ggml_rs::Result<Ran> {
    let Built {
        graph,
        inputs,
        params,
        outputs,
    } = built;
    let placement = match way.separate {
        true => Placement::Separate {
            sentinel_bytes: SENTINELS,
        },
        false => Placement::Pooled,
    };
    let mut plan = Plan::new(graph, on, PlanOptions { placement })?;
    let set = |plan: &mut Plan| -> ggml_rs::Result<()> {
        for (input, at) in &inputs {
            plan.set_bytes(input, &program.bytes(*at))?;
        }
        for (param, at) in &params {
            param.set_bytes(&program.bytes(*at))?;
        }
        Ok(())
    };
    let read = |plan: &Plan| -> ggml_rs::Result<Bytes> {
        let outputs = outputs.iter().map(|(output, _)| plan.read_bytes(output));
        let params = params.iter().map(|(param, _)| param.read_bytes());
        outputs.chain(params).collect()
    };
    set(&mut plan)?;
    match way.how {
        How::Once | How::Again => plan.run(on)?,
        How::Cancellable => drop(plan.run_with(on, until(&Cancel::new()))?),
        How::Traced => drop(plan.run_with(on, traced())?),
    }
    let first = read(&plan)?;
    if way.how == How::Again {
        set(&mut plan)?;
        plan.run(on)?;
        if read(&plan)? != first {
            return Ok(Ran::Wrong("a second run gives other values".to_owned()));
        }
        if !writes_to_leaves(program) {
            plan.run(on)?;
            if read(&plan)? != first {
                return Ok(Ran::Wrong(
                    "leaves changed, or a third run differs".to_owned(),
                ));
            }
        }
    }
    if way.separate {
        plan.check_sentinels()?;
    }
    Ok(Ran::Done {
        bytes: first,
        splits: plan.splits(),
    })
}

/// Whether a leaf has other values after a run.
fn writes_to_leaves(program: &Program) -> bool {
    let is_leaf = |at: usize| !matches!(program.steps[at].op.make, Make::Node(_));
    let mut steps = program.live();
    // A step of AdamW writes its moments, too.
    steps.any(|(at, step)| step.op.writes && is_leaf(program.root(at)))
}
