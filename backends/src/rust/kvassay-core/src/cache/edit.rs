//! Truncation.

use super::Cache;
use super::layer::Layer;
use crate::error::{Error, Kind, Result};

impl Cache {
    /// Cuts every layer to n tokens, as if only those had been appended.
    pub fn truncate(&mut self, n: u64) -> Result<()> {
        let length = self.layers.iter().map(|layer| layer.length).min().unwrap_or(0);
        if n > length {
            let message = format!("truncate: {n} tokens asked for, {length} are there");
            return Err(Error::new(Kind::Argument, message));
        }
        if let Some(layer) = self.layers.iter().position(|layer| !layer.has_fp16(n)) {
            let allowed = |n: &u64| self.layers.iter().all(|layer| layer.has_fp16(*n));
            let near: Vec<_> = (0..n).rev().find(allowed).into_iter().chain((n + 1..=length).find(allowed)).collect();
            let near: Vec<_> = near.iter().map(u64::to_string).collect();
            let message = format!(
                "truncate: layer {layer} has tokens before {n} only as codes; nearest allowed lengths: {}",
                near.join(", ")
            );
            return Err(Error::new(Kind::Truncate, message));
        }
        if let Some(layer) = self.layers.iter().position(|layer| !layer.has_pages(n)) {
            let message = format!("truncate: at {n} tokens layer {layer} needs a page that the span has retired");
            return Err(Error::new(Kind::Span, message));
        }
        self.layers.iter_mut().for_each(|layer| layer.cut(n));
        Ok(())
    }
}

impl Layer {
    /// Every token that must be fp16 at n tokens is.
    fn has_fp16(&self, n: u64) -> bool {
        let spec = &self.plan.spec;
        let sealed = spec.sealed(n);
        n == self.length
            || n <= u64::from(spec.sinks)
            || sealed == self.sealed()
            || n == u64::from(spec.sinks) + sealed * u64::from(spec.page_tokens)
    }

    /// Every page that can be reached at n tokens is held.
    fn has_pages(&self, n: u64) -> bool {
        let spec = &self.plan.spec;
        let reached = spec.first_reached(n);
        n == self.length || reached >= spec.sealed(n) || reached >= self.first_page
    }

    pub(super) fn cut(&mut self, n: u64) {
        if n == self.length {
            return;
        }
        let spec = self.plan.spec;
        let (width, sinks, sealed) = (spec.token_bytes(), u64::from(spec.sinks), spec.sealed(n));
        self.pages.truncate(sealed.saturating_sub(self.first_page) as usize);
        self.first_page = self.first_page.min(sealed);
        if sealed == 0 {
            self.means.iter_mut().for_each(Vec::clear);
        }
        let rest = n.saturating_sub(sinks + sealed * u64::from(spec.page_tokens)) as usize;
        self.residual.iter_mut().for_each(|tokens| tokens.truncate(rest * width));
        self.sinks.iter_mut().for_each(|tokens| tokens.truncate(n.min(sinks) as usize * width));
        self.length = n;
    }
}
