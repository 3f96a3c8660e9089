//! Sealing a page (numeric contract, sections 3 to 6).

pub(crate) mod head;

use head::Head;

use crate::family;
pub use crate::kernels::Workspace;
use crate::layout::{HEADER, PARTS, Part};
use crate::page::{self, PageId};
use crate::plan::Plan;
use crate::rows::Rows;
use crate::spec::{CENTRE_FROZEN, CENTRE_NONE, CENTRE_PAGE};
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
        let mut written = Head { plan, kernels: plan.kernels(), head, page, work };
        family::of(plan.spec.keys()).encode(&mut written, Stream::Keys, keys.head(head), mean);
        let mean = if plan.spec.value_centring() == CENTRE_FROZEN { &value_mean[of_head] } else { &[] };
        family::of(plan.spec.values()).encode(&mut written, Stream::Values, values.head(head), mean);
    }
    page::seal(plan, id, page);
}

/// Zeroes what lies between the streams.
fn zero_gaps(plan: &Plan, page: &mut [u8]) {
    let mut end = HEADER;
    for (part, _) in PARTS {
        let stream = plan.layout.stream(part);
        page[end..stream.start].fill(0);
        end = stream.end;
    }
    page[end..].fill(0);
}
