//! Sealing a page (numeric contract, sections 3 to 6).

use crate::half;
use crate::kernels::{Fp16Rows, Kernels};
use crate::layout::{HEADER, PARTS, Part};
use crate::page::{self, PageId};
use crate::plan::{GROUP, Plan};
use crate::rows::Rows;
use crate::scale;
use crate::spec::{CENTRE_FROZEN, CENTRE_NONE, CENTRE_PAGE, Family};
use crate::transform::{MOST_CHANNELS, Stream};

/// Working memory of a page's encoding.
pub struct Workspace<'a> {
    /// `[page_tokens][d]`.
    pub y: &'a mut [f32],
    /// `[page_tokens]`.
    pub scales: &'a mut [f32],
    /// `[page_tokens]`.
    pub norms: &'a mut [f32],
    /// `[page_tokens][d]`.
    pub codes: &'a mut [u8],
}

/// The mean of the rows of every head, `[kv_heads][d]`.
pub fn page_mean(plan: &Plan, rows: &Rows<'_>, mean: &mut [u8]) {
    let d = plan.d();
    for (head, mean) in mean.chunks_exact_mut(2 * d).enumerate() {
        head_mean(plan.kernels(), rows.head(head), d, mean);
    }
}

fn head_mean(kernels: &dyn Kernels, rows: Fp16Rows<'_>, d: usize, mean: &mut [u8]) {
    let (mut sum, mut row) = ([0.0; MOST_CHANNELS], [0.0; MOST_CHANNELS]);
    let (sum, row) = (&mut sum[..d], &mut row[..d]);
    for j in 0..rows.count {
        kernels.widen(rows.row(j, d), &[], row);
        for (sum, x) in sum.iter_mut().zip(&*row) {
            *sum += x;
        }
    }
    for (c, sum) in sum.iter().enumerate() {
        half::put(mean, c, half::narrow(sum / rows.count as f32));
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
                head_mean(plan.kernels(), keys.head(head), d, &mut own[..2 * d]);
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
            Family::Turbo => stream.turbo(true, true, keys.head(head), mean),
            Family::TurboQjl => {
                stream.turbo(true, false, keys.head(head), mean);
                stream.signs();
            }
        }
        let mean = if plan.spec.value_centring() == CENTRE_FROZEN { &value_mean[of_head] } else { &[] };
        match plan.spec.values() {
            Family::Fp16 => stream.copy(values.head(head), Part::ValueCodes),
            Family::Kivi => stream.affine_values(values.head(head), mean),
            _ => stream.turbo(false, false, values.head(head), mean),
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

    fn turbo(&mut self, keys: bool, unbiased: bool, rows: Fp16Rows<'_>, mean: &[u8]) {
        self.widen(rows, mean);
        let (plan, kernels, head, d) = (self.plan, self.kernels, self.head, self.plan.d());
        let (stream, codec) = if keys { (Stream::Keys, &plan.key) } else { (Stream::Values, &plan.value) };
        let work = &mut *self.work;
        kernels.forward(plan.transform(stream), work.y);
        kernels.quantize(codec, unbiased, work.y, work.codes, work.scales);
        work.scales.iter_mut().for_each(|s| *s *= plan.store);
        if keys {
            kernels.pack_keys(codec, d, work.codes, &mut self.page[plan.layout.range(Part::KeyCodes, head)]);
            self.store(Part::KeyScales, Part::KeyMaxima, false);
        } else {
            kernels.pack_values(codec, d, work.codes, &mut self.page[plan.layout.range(Part::ValueCodes, head)]);
            self.store(Part::ValueScales, Part::ValueMaxima, false);
        }
    }

    fn store(&mut self, scales: Part, maxima: Part, norms: bool) {
        let (layout, head) = (&self.plan.layout, self.head);
        let (front, back) = self.page.split_at_mut(layout.range(maxima, head).start);
        let maximum = layout.range(maxima, head).len();
        let what = if norms { &*self.work.norms } else { &*self.work.scales };
        scale::store(self.plan.spec.scale_kind, what, &mut front[layout.range(scales, head)], &mut back[..maximum]);
    }

    /// The sign projection of what the keys' codes leave, from y and codes as `turbo` left them.
    fn signs(&mut self) {
        let (plan, kernels, head, d) = (self.plan, self.kernels, self.head, self.plan.d());
        let layout = &plan.layout;
        let work = &mut *self.work;
        let (scales, maxima) = (layout.range(Part::KeyScales, head), layout.range(Part::KeyMaxima, head));
        let unit = scale::load(plan.spec.scale_kind, &self.page[scales], &self.page[maxima], work.scales);
        let tokens = work.y.chunks_exact_mut(d).zip(work.codes.chunks_exact(d));
        for ((su, norm), (y, codes)) in work.scales.iter().zip(&mut *work.norms).zip(tokens) {
            let n2 = kernels.residual(&plan.key, y, codes, su * unit * plan.unstore);
            *norm = n2.sqrt() * plan.store;
        }
        kernels.forward(plan.transform(Stream::Signs), work.y);
        for (y, code) in work.y.iter().zip(&mut *work.codes) {
            *code = u8::from(*y >= 0.0);
        }
        kernels.pack_keys(&plan.signs, d, work.codes, &mut self.page[layout.range(Part::KeySigns, head)]);
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
