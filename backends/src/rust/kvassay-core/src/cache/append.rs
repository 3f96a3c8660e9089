//! Appending: checked and reserved before the first write.

use std::sync::Arc;

use super::layer::{Layer, Page};
use super::memory;
use super::{Cache, no_layer};
use crate::encode;
use crate::error::{Error, Kind, Place, Result};
use crate::half;
use crate::kernels::control::StandardArithmetic;
use crate::plan::Plan;
use crate::rows::Rows;

impl Cache {
    /// Appends tokens: keys (after RoPE) and values, both `[tokens][kv_heads][head_dim]`.
    pub fn append(&mut self, layer: usize, keys: &[f32], values: &[f32], tokens: u64) -> Result<()> {
        let _standard = StandardArithmetic::begin();
        let there = self.layers.len();
        let plan = self.layers.get(layer).ok_or_else(|| no_layer(layer, there))?.plan.clone();
        let width = plan.heads() * plan.d();
        let expected = (tokens as usize).checked_mul(width);
        for (name, rows) in [("keys", keys), ("values", values)] {
            if Some(rows.len()) != expected {
                let message = format!("{name}: {} numbers are not {tokens} tokens of {width}", rows.len());
                return Err(Error::new(Kind::Argument, message));
            }
            check_finite(&plan, layer, name, rows)?;
        }
        if tokens == 0 {
            return Ok(());
        }
        let length = self.layers[layer].length + tokens;
        if length > u64::from(u32::MAX) {
            let message = format!("append: {length} tokens, positions in pages end at 4294967295");
            return Err(Error::new(Kind::Argument, message));
        }
        let (mut fresh, allocations) = self.reserve(layer, tokens)?;
        self.layers[layer].retire();
        let mut done = 0;
        loop {
            let count = self.layers[layer].take(tokens as usize - done, fresh.len());
            let numbers = done * width..(done + count) * width;
            self.layers[layer].store([&keys[numbers.clone()], &values[numbers]], count as u64);
            done += count;
            if self.layers[layer].has_page()
                && let Some(page) = fresh.pop()
            {
                self.seal(layer, page);
            } else if done == tokens as usize {
                break;
            }
        }
        self.counters.ran |= 1 << self.config.variant as u32;
        self.note(allocations);
        Ok(())
    }

    /// All memory that an append takes; new pages, in any order.
    fn reserve(&mut self, layer: usize, tokens: u64) -> Result<(Vec<Page>, u64)> {
        let due = self.layers[layer].plan.spec.sealed(self.layers[layer].length + tokens) - self.layers[layer].sealed();
        let plan = self.layers[layer].plan.clone();
        let mut allocations = self.layers[layer].reserve(tokens, due as usize)?;
        let mut fresh = memory::vector(due as usize)?;
        for _ in 0..due {
            fresh.push(Arc::new(memory::zeros(plan.layout.bytes())?));
        }
        if due > 0 {
            allocations += 2 * due + self.scratch.reserve_encoding(&plan)?;
        }
        Ok((fresh, allocations))
    }

    /// Seals the oldest tokens of the residual, a page of them.
    fn seal(&mut self, layer: usize, mut page: Page) {
        let held = &self.layers[layer];
        let number = held.first_page + held.pages.len() as u64;
        let plan = held.plan.clone();
        let start = u64::from(plan.spec.sinks) + number * u64::from(plan.spec.page_tokens);
        let id = self.page_id(layer, start);
        let bytes = Arc::get_mut(&mut page).expect("a page that nobody else holds");
        let held = &mut self.layers[layer];
        held.freeze(&plan, number);
        let [keys, values] = [0, 1].map(|stream| first_page(&plan, held.residual_rows(stream)));
        let means = (held.means[0].as_slice(), held.means[1].as_slice());
        encode::encode(&plan, &id, (&keys, &values), means, bytes, &mut self.scratch.workspace(&plan));
        held.pages.push(page);
        let sealed = plan.page_tokens() * plan.spec.token_bytes();
        held.residual.iter_mut().for_each(|tokens| tokens.drop_front(sealed));
        self.counters.pages_encoded += 1;
    }
}

fn first_page<'a>(plan: &Plan, rows: Rows<'a>) -> Rows<'a> {
    Rows { count: plan.page_tokens(), ..rows }
}

fn check_finite(plan: &Plan, layer: usize, name: &str, rows: &[f32]) -> Result<()> {
    let good = |x: &f32| x.abs() <= half::LARGEST; // false for NaN
    if rows.chunks(1024).all(|some| some.iter().fold(true, |all, x| all & good(x))) {
        return Ok(());
    }
    let at = rows.iter().position(|x| !good(x)).expect("a number that is not good");
    let (row, channel) = (at / plan.d(), (at % plan.d()) as u32);
    let (token, head) = ((row / plan.heads()) as u64, (row % plan.heads()) as u32);
    let x = rows[at];
    let message = format!(
        "{name}: {x} in layer {layer}, token {token}, head {head}, channel {channel}: must be finite, at most 65504"
    );
    Err(Error::at(Place { layer: Some(layer as u32), token, head, channel }, message))
}

impl Layer {
    /// Room for everything that these tokens need; how many allocations were made.
    fn reserve(&mut self, tokens: u64, pages: usize) -> Result<u64> {
        let spec = self.plan.spec;
        let width = spec.token_bytes();
        let sinks = u64::from(spec.sinks).saturating_sub(self.length).min(tokens);
        let held = (self.residual[0].bytes().len() / width) as u64;
        // No more than a window and a page are ever held: whole pages go as they fall due.
        let most = u64::from(spec.window) + u64::from(spec.page_tokens);
        let more = (held + tokens - sinks).min(most) - held;
        let mut allocations = 0;
        for stream in 0..2 {
            allocations += u64::from(self.sinks[stream].reserve(sinks as usize * width, spec.sinks as usize * width)?);
            allocations += u64::from(self.residual[stream].reserve(more as usize * width, most as usize * width)?);
        }
        if pages > 0 {
            for mean in &mut self.means {
                mean.try_reserve_exact(width - mean.len()).map_err(memory::refused)?;
            }
            allocations += u64::from(self.pages.capacity() - self.pages.len() < pages);
            self.pages.try_reserve(pages).map_err(memory::refused)?;
        }
        Ok(allocations)
    }

    /// Tokens of the residual.
    fn residual_tokens(&self) -> usize {
        self.residual[0].bytes().len() / self.plan.spec.token_bytes()
    }

    /// Whether the residual has the tokens of a page.
    fn has_page(&self) -> bool {
        self.residual_tokens() >= self.plan.page_tokens()
    }

    /// How many of the coming tokens are stored before something else happens: sinks end, or the next of the pages that
    /// fall due is whole. Pages are sealed as early as that, so that the tokens of a long append are read where they
    /// were just written and none but its last are ever moved.
    fn take(&self, coming: usize, due: usize) -> usize {
        let sinks = u64::from(self.plan.spec.sinks);
        if self.length < sinks {
            return coming.min((sinks - self.length) as usize);
        }
        let missing = self.plan.page_tokens().saturating_sub(self.residual_tokens());
        if due > 0 { coming.min(missing) } else { coming }
    }

    fn store(&mut self, rows: [&[f32]; 2], tokens: u64) {
        let kernels = self.plan.kernels();
        let sinks = self.length < u64::from(self.plan.spec.sinks);
        for (stream, rows) in rows.into_iter().enumerate() {
            let to = if sinks { &mut self.sinks[stream] } else { &mut self.residual[stream] };
            let good = kernels.narrow(rows, to.extend(2 * rows.len()));
            debug_assert!(good, "checked before");
        }
        self.length += tokens;
    }

    /// Makes the frozen means when page 0 is sealed.
    fn freeze(&mut self, plan: &Plan, number: u64) {
        if number > 0 {
            return;
        }
        for (stream, _) in self.plan.spec.frozen().into_iter().enumerate().filter(|(_, frozen)| *frozen) {
            let mut mean = std::mem::take(&mut self.means[stream]);
            mean.resize(plan.spec.token_bytes(), 0);
            encode::page_mean(plan, &first_page(plan, self.residual_rows(stream)), &mut mean);
            self.means[stream] = mean;
        }
    }

    /// Drops the pages that no later query can reach.
    pub fn retire(&mut self) {
        let live = self.plan.spec.first_live(self.length);
        let gone = live.saturating_sub(self.first_page) as usize;
        self.pages.drain(..gone);
        self.first_page += gone as u64;
    }
}
