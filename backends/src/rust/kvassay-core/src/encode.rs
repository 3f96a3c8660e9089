//! Sealing a page (numeric contract, sections 3 to 6).

use crate::half;
use crate::kernels::{Fp16Rows, Kernels, Role, Turbo};

pub use crate::kernels::Workspace;
use crate::layout::{HEADER, PARTS, Part};
use crate::page::{self, PageId};
use crate::plan::{GROUP, Plan};
use crate::rows::Rows;
use crate::scale;
use crate::spec::{CENTRE_FROZEN, CENTRE_NONE, CENTRE_PAGE, Family};
use crate::transform::{MOST_CHANNELS, Stream};

/// The mean of the rows of every head, `[kv_heads][d]`.
pub fn page_mean(plan: &Plan, rows: &Rows<'_>, mean: &mut [u8]) {
    let d = plan.d();
    for (head, mean) in mean.chunks_exact_mut(2 * d).enumerate() {
        plan.kernels().mean(rows.head(head), d, mean);
    }
}

/// Encodes `page_tokens` rows into a page. Frozen means are used where the spec has them; they must be given then.
pub fn encode(
    plan: &Plan,
    id: &PageId,
    (keys, values): (&Rows<'_>, &Rows<'_>),
    (key_mean, value_mean): (&[u8], &[u8]),
    page: &mut [u8],
    work: &mut Workspace<'_>,
) {
    let d = plan.d();
    zero_gaps(plan, page);
    for head in 0..plan.heads() {
        let of_head = 2 * d * head..2 * d * (head + 1);
        let mut own = [0; 2 * MOST_CHANNELS];
        let mean: &[u8] = match plan.spec.key_centring() {
            CENTRE_NONE => &[],
            CENTRE_FROZEN => &key_mean[of_head.clone()],
            _ => {
                plan.kernels().mean(keys.head(head), d, &mut own[..2 * d]);
                &own[..2 * d]
            }
        };
        if plan.spec.key_centring() == CENTRE_PAGE {
            page[plan.layout.range(Part::KeyMean, head)].copy_from_slice(mean);
        }
        let mut stream = Head { plan, kernels: plan.kernels(), head, page, work };
        match plan.spec.keys() {
            Family::Fp16 => stream.copy(keys.head(head), Part::KeyCodes),
            Family::Kivi => stream.affine_keys(keys.head(head), mean),
            Family::Turbo => stream.turbo(Role::Keys, keys.head(head), mean),
            Family::TurboQjl => {
                stream.turbo(Role::SignedKeys, keys.head(head), mean);
                stream.signs();
            }
        }
        let mean = if plan.spec.value_centring() == CENTRE_FROZEN { &value_mean[of_head] } else { &[] };
        match plan.spec.values() {
            Family::Fp16 => stream.copy(values.head(head), Part::ValueCodes),
            Family::Kivi => stream.affine_values(values.head(head), mean),
            _ => stream.turbo(Role::Values, values.head(head), mean),
        }
    }
    page::seal(plan, id, page);
}

/// Zeroes what lies between the streams.
fn zero_gaps(plan: &Plan, page: &mut [u8]) {
    let mut end = HEADER;
    for part in PARTS {
        let stream = plan.layout.stream(part);
        page[end..stream.start].fill(0);
        end = stream.end;
    }
    page[end..].fill(0);
}

/// One head of a page that is being written.
struct Head<'a, 'w> {
    plan: &'a Plan,
    kernels: &'static dyn Kernels,
    head: usize,
    page: &'a mut [u8],
    work: &'a mut Workspace<'w>,
}

impl Head<'_, '_> {
    fn part(&mut self, part: Part) -> &mut [u8] {
        &mut self.page[self.plan.layout.range(part, self.head)]
    }

    fn copy(&mut self, rows: Fp16Rows<'_>, part: Part) {
        let d = self.plan.d();
        for (j, out) in self.part(part).chunks_exact_mut(2 * d).enumerate() {
            out.copy_from_slice(rows.row(j, d));
        }
    }

    fn widen(&mut self, rows: Fp16Rows<'_>, mean: &[u8]) {
        let d = self.plan.d();
        for (j, y) in self.work.y.chunks_exact_mut(d).enumerate() {
            self.kernels.widen(rows.row(j, d), mean, y);
        }
    }

    fn turbo(&mut self, role: Role, rows: Fp16Rows<'_>, mean: &[u8]) {
        let plan = self.plan;
        let (codec, stream, [codes, scales, maxima]) = match role {
            Role::Values => (&plan.value, Stream::Values, [Part::ValueCodes, Part::ValueScales, Part::ValueMaxima]),
            _ => (&plan.key, Stream::Keys, [Part::KeyCodes, Part::KeyScales, Part::KeyMaxima]),
        };
        let turbo = Turbo { codec, transform: plan.transform(stream), role };
        self.kernels.encode(&turbo, rows, mean, self.work, &mut self.page[plan.layout.range(codes, self.head)]);
        self.work.scales.iter_mut().for_each(|s| *s *= plan.store);
        self.store(scales, maxima, false);
    }

    fn store(&mut self, scales: Part, maxima: Part, norms: bool) {
        let (layout, head) = (&self.plan.layout, self.head);
        let (front, back) = self.page.split_at_mut(layout.range(maxima, head).start);
        let maximum = layout.range(maxima, head).len();
        let what = if norms { &*self.work.norms } else { &*self.work.scales };
        scale::store(self.plan.spec.scale_kind, what, &mut front[layout.range(scales, head)], &mut back[..maximum]);
    }

    /// The sign projection of what the keys' codes leave, after `turbo`.
    fn signs(&mut self) {
        let (plan, layout, head) = (self.plan, &self.plan.layout, self.head);
        let (scales, maxima) = (layout.range(Part::KeyScales, head), layout.range(Part::KeyMaxima, head));
        let unit = scale::load(plan.spec.scale_kind, &self.page[scales], &self.page[maxima], self.work.scales);
        self.work.scales.iter_mut().for_each(|su| *su = *su * unit * plan.unstore);
        let tiles = &mut self.page[layout.range(Part::KeySigns, head)];
        self.kernels.signs(&plan.key, plan.transform(Stream::Signs), self.work, tiles);
        self.work.norms.iter_mut().for_each(|n2| *n2 = n2.sqrt() * plan.store);
        self.store(Part::KeyNorms, Part::NormMaxima, true);
    }

    fn affine_keys(&mut self, rows: Fp16Rows<'_>, mean: &[u8]) {
        self.widen(rows, mean);
        let (plan, kernels, d) = (self.plan, self.kernels, self.plan.d());
        let (steps, minima) =
            (plan.layout.range(Part::KeySteps, self.head), plan.layout.range(Part::KeyMinima, self.head));
        let (front, back) = self.page.split_at_mut(minima.start);
        let groups = front[steps].chunks_exact_mut(2 * d).zip(back[..minima.len()].chunks_exact_mut(2 * d));
        let work = &mut *self.work;
        let tokens = work.y.chunks(GROUP * d).zip(work.codes.chunks_mut(GROUP * d));
        let bits = plan.key.spans()[0].bits;
        for ((steps, minima), (y, codes)) in groups.zip(tokens) {
            kernels.affine_keys(bits, y, d, codes, steps, minima);
        }
        kernels.pack_keys(&plan.key, d, work.codes, &mut self.page[plan.layout.range(Part::KeyCodes, self.head)]);
    }

    fn affine_values(&mut self, rows: Fp16Rows<'_>, mean: &[u8]) {
        self.widen(rows, mean);
        let (plan, kernels, d, tokens) = (self.plan, self.kernels, self.plan.d(), self.plan.page_tokens());
        let (steps, minima) =
            (plan.layout.range(Part::ValueSteps, self.head), plan.layout.range(Part::ValueMinima, self.head));
        let work = &mut *self.work;
        let bits = plan.value.spans()[0].bits;
        for (j, (y, codes)) in work.y.chunks_exact(d).zip(work.codes.chunks_exact_mut(d)).enumerate() {
            for (group, (y, codes)) in y.chunks(GROUP).zip(codes.chunks_mut(GROUP)).enumerate() {
                let (step, minimum) = kernels.affine_values(bits, y, codes);
                half::put(&mut self.page[steps.clone()], group * tokens + j, step);
                half::put(&mut self.page[minima.clone()], group * tokens + j, minimum);
            }
        }
        kernels.pack_values(&plan.value, d, work.codes, &mut self.page[plan.layout.range(Part::ValueCodes, self.head)]);
    }
}
