//! Decoding a page, against `memcpy` (the memory's limit) and the bare decoder (ours must add nothing).
//!
//! `split` is the decode across a ring's seam, in the middle of a quad.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "criterion's macros; a bench that fails may panic"
)]

use std::hint::black_box;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use playhead_core::base64::{decode, decode_split};

/// The engine as the crate gives it, without a line of ours.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn bare() -> impl base64::Engine {
    base64::engine::Simd::standard(base64::engine::general_purpose::PAD)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn bare() -> impl base64::Engine {
    STANDARD
}

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    for kib in [8, 100, 1024_usize] {
        let bytes: Vec<u8> = (0..kib * 1024).map(|i| (i * 31 % 251) as u8).collect();
        let text = STANDARD.encode(&bytes);
        let mut out = vec![0; bytes.len()];
        let id = |name| BenchmarkId::new(name, format!("{kib}KiB"));
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(id("memcpy"), |b| {
            b.iter(|| out.copy_from_slice(black_box(&bytes)));
        });
        let engine = bare();
        group.bench_function(id("bare"), |b| {
            b.iter(|| engine.decode_slice(black_box(&text), &mut out).unwrap());
        });
        group.bench_function(id("ours"), |b| {
            b.iter(|| decode(black_box(text.as_bytes()), &mut out).unwrap());
        });
        group.bench_function(id("split"), |b| {
            b.iter(|| {
                let (first, second) = out.split_at_mut(bytes.len() / 2 / 3 * 3 + 1);
                decode_split(black_box(text.as_bytes()), first, second).unwrap();
            });
        });
        group.bench_function(id("scalar"), |b| {
            b.iter(|| STANDARD.decode_slice(black_box(&text), &mut out).unwrap());
        });
    }
    group.finish();
}

criterion_group!(decoding, benches);
criterion_main!(decoding);
