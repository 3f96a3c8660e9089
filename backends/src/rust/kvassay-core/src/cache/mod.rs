//! One sequence with its life cycle (docs/lifecycle.md).

mod append;
mod bill;
mod dump;
mod edit;
mod layer;
mod memory;
mod restore;

use std::sync::Arc;

use crate::attend::{self, MOST_ROWS, Sizes};
use crate::error::{Error, Kind, Result};
use crate::kernels::Variant;
use crate::kernels::control::StandardArithmetic;
use crate::page::PageId;
use crate::plan::Plan;
use crate::spec::LayerSpec;

pub use bill::Stats;
pub use dump::DUMP_VERSION;
use layer::Layer;
use memory::Scratch;

/// What a cache is made from.
#[derive(Clone, Debug)]
pub struct Config {
    /// One spec a layer.
    pub specs: Vec<LayerSpec>,
    /// The variant whose kernels run.
    pub variant: Variant,
    /// Text kept in dumps and compared on restore.
    pub identity: Vec<u8>,
    /// Hash for page headers, 0 if not given.
    pub model: u64,
    /// Likewise.
    pub tokenizer: u64,
    /// Likewise.
    pub runtime: u64,
}

impl Config {
    /// Layers of one spec with the best variant, an identity text and no hashes.
    pub fn new(spec: LayerSpec, layers: usize, identity: &str) -> Result<Self> {
        Ok(Self {
            specs: vec![spec; layers],
            variant: Variant::find(None)?,
            identity: identity.as_bytes().to_vec(),
            model: 0,
            tokenizer: 0,
            runtime: 0,
        })
    }
}

/// A cache: one sequence, used by one thread at a time. A call that fails changes nothing.
pub struct Cache {
    config: Arc<Config>,
    layers: Vec<Layer>,
    scratch: Scratch,
    counters: Counters,
}

/// What a cache did so far.
#[derive(Clone, Copy, Default)]
struct Counters {
    allocations: u64,
    pages_encoded: u64,
    pages_scanned: u64,
    peak: u64,
    ran: u32,
}

impl Cache {
    /// An empty cache.
    pub fn new(config: Config) -> Result<Self> {
        if config.specs.is_empty() || config.specs.len() > 1 << 16 {
            let message = format!("layers: {} is not in 1 .. 65536", config.specs.len());
            return Err(Error::new(Kind::Argument, message));
        }
        let mut plans: Vec<Arc<Plan>> = Vec::new();
        let mut layers = memory::vector(config.specs.len())?;
        for spec in &config.specs {
            let plan = match plans.iter().find(|plan| plan.spec == *spec) {
                Some(plan) => plan.clone(),
                None => {
                    plans.push(Arc::new(Plan::new(spec, config.variant)?));
                    plans[plans.len() - 1].clone()
                }
            };
            layers.push(Layer::new(plan));
        }
        let mut cache =
            Self { config: Arc::new(config), layers, scratch: Scratch::default(), counters: Counters::default() };
        cache.note(3);
        Ok(cache)
    }

    /// Layers.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// The spec of a layer.
    pub fn spec(&self, layer: usize) -> Result<&LayerSpec> {
        Ok(&self.layer(layer)?.plan.spec)
    }

    /// Tokens appended to a layer, retired ones included.
    pub fn length(&self, layer: usize) -> Result<u64> {
        Ok(self.layer(layer)?.length)
    }

    /// Live pages of a layer in order.
    pub fn pages(&self, layer: usize) -> Result<impl ExactSizeIterator<Item = &[u8]>> {
        Ok(self.layer(layer)?.live().iter().map(|page| page.as_slice()))
    }

    fn layer(&self, layer: usize) -> Result<&Layer> {
        let there = self.layers.len();
        self.layers.get(layer).ok_or_else(|| no_layer(layer, there))
    }

    fn page_id(&self, layer: usize, token_start: u64) -> PageId {
        PageId {
            model: self.config.model,
            tokenizer: self.config.tokenizer,
            runtime: self.config.runtime,
            token_start: token_start as u32,
            layer: layer as u32,
        }
    }

    /// Attention of q `[n][query_heads][head_dim]`, causal over the last n tokens, into `out`, of the same shape.
    pub fn attend(&mut self, layer: usize, q: &[f32], queries: u64, out: &mut [f32]) -> Result<()> {
        let _standard = StandardArithmetic::begin();
        let there = self.layers.len();
        let layer_of = self.layers.get(layer).ok_or_else(|| no_layer(layer, there))?;
        let plan = &layer_of.plan;
        let rows = (queries as usize).saturating_mul(plan.group());
        let grew = self.scratch.reserve(Sizes::new(plan, rows.min(MOST_ROWS)))?;
        let mut worker = self.scratch.worker(Sizes::new(plan, rows.min(MOST_ROWS)));
        let scanned = attend::attend(plan, layer_of.state(), q, queries, out, &mut worker)
            .map_err(|error| error.in_layer(layer as u32))?;
        self.counters.pages_scanned += scanned;
        self.counters.ran |= 1 << self.config.variant as u32;
        self.note(grew);
        Ok(())
    }

    /// Logits of q `[query_heads][head_dim]` into `out` `[query_heads][length]`, minus infinity where not attended.
    pub fn scores(&mut self, layer: usize, q: &[f32], out: &mut [f32]) -> Result<()> {
        let _standard = StandardArithmetic::begin();
        let there = self.layers.len();
        let layer_of = self.layers.get(layer).ok_or_else(|| no_layer(layer, there))?;
        let plan = &layer_of.plan;
        let sizes = Sizes::new(plan, plan.group());
        let grew = self.scratch.reserve(sizes)?;
        let mut worker = self.scratch.worker(sizes);
        let scanned = attend::scores(plan, layer_of.state(), q, out, &mut worker)
            .map_err(|error| error.in_layer(layer as u32))?;
        self.counters.pages_scanned += scanned;
        self.counters.ran |= 1 << self.config.variant as u32;
        self.note(grew);
        Ok(())
    }

    /// As newly prepared; memory is kept.
    pub fn reset(&mut self) {
        self.layers.iter_mut().for_each(Layer::clear);
    }

    /// A second cache with equal state; sealed pages are shared.
    pub fn fork(&self) -> Result<Self> {
        let mut layers = memory::vector(self.layers.len())?;
        for layer in &self.layers {
            layers.push(layer.fork()?);
        }
        let mut cache =
            Self { config: self.config.clone(), layers, scratch: Scratch::default(), counters: Counters::default() };
        cache.note(2);
        Ok(cache)
    }
}

fn no_layer(layer: usize, there: usize) -> Error {
    Error::new(Kind::Argument, format!("layer: {layer} is not in 0 .. {}", there - 1))
}
