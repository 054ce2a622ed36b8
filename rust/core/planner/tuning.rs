//! Every constant of the planner, with its source.

// --- the end -----------------------------------------------------------------------------------------------

/// False claims of an end at one offset that make a contradiction: one may be a hiccup, two a cache.
pub(super) const FALSE_CLAIMS: u32 = 3;
/// Equal error answers at one offset that make an end, if the byte before is served between them.
pub(super) const ERROR_CLAIMS: u32 = 3;
/// Bytes below the announced size that are read to check a claim: the page size of most file systems.
pub(super) const TAIL_BYTES: u64 = 4096;
/// Rounds of corroboration of a claim below an announced size.
pub(super) const ROUNDS_BELOW_SIZE: u32 = 2;
/// Pause between two such rounds: longer than a cache's hiccup, shorter than a pause
/// that a listener takes for the end.
pub(super) const CLAIM_ROUND_SECONDS: f64 = 0.5;
/// Minimum wait for reads in flight past a corroborated claim.
pub(super) const WAIT_PAST_CLAIM_SECONDS: f64 = 0.5;
/// The limit of remembered offsets of short pages and false claims: far more than are in flight.
pub(super) const SHORT_ENDS_KEPT: usize = 512;
/// The limit of successful answers in a row without a new byte (`Limits.stagnant_pages`).
pub(super) const STAGNANT_ANSWERS: u32 = 8;

// --- patience ----------------------------------------------------------------------------------------------

/// The second retry waits about this long, each later one twice as long as the one before; the first does not wait.
pub(super) const BACKOFF_SECONDS: f64 = 0.1;
/// The longest such wait: a server that is back is noticed within five seconds.
pub(super) const BACKOFF_MAX_SECONDS: f64 = 5.0;
/// Doublings after which a wait is far past its maximum; keeps the power finite.
pub(super) const MOST_DOUBLINGS: u32 = 16;
/// Failures without progress after which only the head page is read again.
pub(super) const FAILURES_TO_OUTAGE: u32 = 2;
/// The limit of retries within a second, without progress.
pub(super) const RETRIES_PER_SECOND: usize = 2;
/// Pause between two retries while the listener has paused.
pub(super) const PAUSED_RETRY_SECONDS: f64 = 60.0;
/// Pauses before a refused head page is read again; after the last of them it has failed.
pub(super) const REFUSAL_DELAYS_SECONDS: [f64; 3] = [1.0, 5.0, 15.0];
/// A wait that deserves a status line.
pub(super) const STATUS_SECONDS: f64 = 3.0;
/// Added to a timer that the driver compares with its own clock, because seconds are rounded.
pub(super) const TIMER_SLACK_SECONDS: f64 = 0.001;

// --- hedging -----------------------------------------------------------------------------------------------

/// Later pages that must have arrived before a late one is read a second time (TCP's duplicate acknowledgements, less
/// one).
pub(super) const OVERTAKEN_TO_HEDGE: u32 = 2;
/// Hedges that a stream may send at once, and one more for this many requests: covers losses of a few per cent
/// without asking a generally slow server twice for everything.
pub(super) const HEDGES_AT_START: u64 = 2;
pub(super) const REQUESTS_PER_HEDGE: u64 = 20;
/// No page is late before this: a garbage collection looks like a loss.
pub(super) const LATE_MIN_SECONDS: f64 = 0.5;
/// Every page is late after this.
pub(super) const LATE_MAX_SECONDS: f64 = 30.0;

// --- requests in flight -------------------------------------------------------------------------------------

/// Requests at once: a third more than the connections that a browser opens to one host.
pub(super) const IN_FLIGHT: usize = 8;
/// Requests at once if nothing queues at the server, so that latency limits. 32 MiB at 100 ms per page: 4.8 s with 8,
/// 2.8 with 16 (measured).
pub(super) const IN_FLIGHT_AT_LATENCY: usize = 16;
/// Requests at once if the server's pages are small: more of them instead of a slower stream.
pub(super) const IN_FLIGHT_OF_SMALL: usize = 64;
/// The page size of these counts: what existing servers expect.
pub(super) const FULL_PAGE_BYTES: u64 = 100 << 10;
/// The window grows by one per page and shrinks by 30 % on an error: additive increase, multiplicative decrease (TCP).
pub(super) const WINDOW_LOSS: f64 = 0.7;
/// Pages that take this many least latencies have waited for each other. Below it lie jitter and a page's own transfer.
pub(super) const QUEUED_LATENCIES: f64 = 1.75;
/// Shorter gaps between requests are below what a driver's timer can keep.
pub(super) const PACING_MIN_SECONDS: f64 = 0.002;

/// Requests at once at a server that answers one read at a time: one that it serves, and one that waits. A seek waits
/// for both.
pub(super) const IN_FLIGHT_SERIAL: usize = 2;
/// Answers in a row that show such a server (a first burst and two more pages are enough), and the factor by which
/// their sizes differ. Pages that share a link may take equally long, too, but not so many of so different sizes.
pub(super) const SERIAL_ANSWERS: u32 = 4;
pub(super) const SERIAL_SIZES: u64 = 4;
/// A page waited for the page before it if it was in flight for this share of the time that the other took.
pub(super) const SERIAL_WAIT: f64 = 0.5;
/// Two pages took the same time if the times differ by no more than this factor. The first two of a burst that share a
/// link differ by one and a half.
pub(super) const SAME_GAP: f64 = 1.1;
/// If the link is the limit, bytes of the second page arrive well before this share of the first page's time, and after
/// the bytes that were read together with the first page.
pub(super) const SERIAL_SILENCE: f64 = 0.5;
pub(super) const SERIAL_HEARD_SECONDS: f64 = 0.02;
/// A page of another size is so many times as large: on a full link it would take as much longer.
pub(super) const OTHER_SIZE: f64 = 1.4;
/// The next page may take so many times as long as the newest.
pub(super) const SERIAL_MARGIN: f64 = 1.25;
/// Audio in the first page after a seek at such a server: more than the next page takes, as a rule.
pub(super) const SERIAL_PAGE_SECONDS: f64 = 1.0;
/// Bytes added to that page for the decoder: one for MP3 buffers 16 KiB, and reads two steps more, before it keeps
/// pace.
pub(super) const SERIAL_PAGE_BYTES: u64 = 20 << 10;

// --- the link -----------------------------------------------------------------------------------------------

/// The window of a delivery rate: BBR's ten rounds, at a second each.
pub(super) const BANDWIDTH_WINDOW_SECONDS: f64 = 10.0;
/// The window of a least latency: long enough to need few lone pages, short enough for a changed route. BBR takes 10 s.
pub(super) const FLOOR_WINDOW_SECONDS: f64 = 30.0;
/// Rounds without 25 % growth after which the link counts as full (BBR's "full pipe").
pub(super) const FLAT_ROUNDS: u32 = 3;
pub(super) const GROWTH: f64 = 1.25;
/// Bytes in flight, in bandwidth-delay products: the rate a window can show doubles at most from round to round.
pub(super) const GAIN_STARTUP: f64 = 2.0;
/// Half a product more than fills the link, against jitter (won in simulated time over 1.25 and 2).
pub(super) const GAIN_STEADY: f64 = 1.5;
/// Requests leave faster than answers arrive, by as much as the rate may still grow.
pub(super) const PACING_STARTUP: f64 = 2.0;
pub(super) const PACING_STEADY: f64 = 1.25;
/// Answers that share a link overlap, so pages that follow each other read up to twice too fast.
pub(super) const TRAIN_EXCESS: f64 = 2.0;
/// Rounds whose rate grew with their pages, by this much of it, before a cost per page is assumed; one may be chance,
/// because the first pages are small and share the link.
pub(super) const ROUNDS_IN_PROPORTION: u32 = 2;
pub(super) const LARGER_PAGES: f64 = 1.25;
pub(super) const IN_PROPORTION: f64 = 0.8;
/// Latency below the resolution of a driver's clock; keeps rates finite.
pub(super) const TICK_SECONDS: f64 = 1e-6;

// --- the size of a page -------------------------------------------------------------------------------------

/// A page should take about half a second to transfer, or one and a half latencies if that is longer: a retry or a
/// seek wastes no more.
pub(super) const PAGE_SECONDS: f64 = 0.5;
pub(super) const PAGE_LATENCIES: f64 = 1.5;
/// The least number of pages in the room: with fewer, none can overlap.
pub(super) const PAGES_IN_ROOM: u64 = 4;
/// The growth from page to page, as in TCP's slow start.
pub(super) const PAGE_GROWTH: u64 = 2;
/// The growth of pages if only larger ones are faster: each small one costs as much as a large one.
pub(super) const PAGE_GROWTH_BY_COST: u64 = 4;
/// The page after a first burst of three, in first pages. Without this doubling a slow server needs three more reads;
/// with it a slow link loses half a second after the first audio.
pub(super) const ALWAYS_AFFORDED: u64 = 8;
/// Short pages in a row that show a cap of the server; one may be the end of the file.
pub(super) const SHORTS_TO_LEARN: u32 = 3;
/// Whole pages at the cap before a page of twice the size is tried again; doubles with every try.
pub(super) const WHOLES_TO_TEST_CAP: u32 = 16;
pub(super) const WHOLES_TO_TEST_CAP_MAX: u32 = 4096;
/// A round whose mean page is this close to the largest allowed measures that size.
pub(super) const PAGES_OF_SIZE: f64 = 0.9;
/// Doubled pages must raise the rate this much to stay. On a full link they gain nothing; the client's own cost per
/// page gains 10 to 40 % (7.0 ms of CPU per MiB at 100 KiB, 4.5 at 256, 3.8 at 512; measured).
pub(super) const LARGER_PAYS: f64 = 1.1;
/// Larger pages are tried if a page this many times as large would not take too long. If a cost per page is the limit,
/// the rate grows with the pages, and so does the size that does not take too long.
pub(super) const ROOM_TO_TRY: f64 = 1.25;
/// Rounds in which larger pages must raise the rate: one round may be slow by chance on a busy machine.
pub(super) const ROUNDS_ON_TRIAL: u32 = 3;
/// Rounds before larger pages are tried again after they gained nothing; doubles with every such try.
pub(super) const ROUNDS_TO_RETRY: u32 = 8;
pub(super) const ROUNDS_TO_RETRY_MAX: u32 = 1024;

// --- the start gate -----------------------------------------------------------------------------------------
// Seconds are seconds of audio. Values without a source were chosen in simulated time (tests/planner_gate.rs).

/// Audio in hand before playing starts. A start within half a second feels immediate, and in that time a fast enough
/// link delivers the pages in flight.
pub const START_SECONDS: f64 = 0.5;
/// Audio in hand before playing goes on after it ran dry: one longer pause disturbs less than many short ones (28
/// pauses in 6.8 s were measured when each page was played as it arrived).
pub const REFILL_SECONDS: f64 = 1.0;
/// A link this many times faster than the audio needs no more than `START_SECONDS`. One that is three times faster
/// measures as this after two pages.
pub(super) const FAST_LINK: f64 = 2.4;
/// Audio in hand before playing starts from any other link: its pages may grow to a second of audio, and its surplus
/// makes up for a late one only slowly.
pub(super) const SLOW_START_SECONDS: f64 = 1.0;
/// The stretch that must play without a stall if more is left: longer than the window of the rate (10 s).
pub(super) const HORIZON_SECONDS: f64 = 30.0;
/// Share of the measured rate to rely on: samples of pages that share a link read up to a tenth too high.
pub(super) const RATE_SHARE: f64 = 0.9;
/// The next page may arrive this many times later than estimated; on a fast link, whose pages rarely share, earlier.
pub(super) const ARRIVAL_MARGIN: f64 = 1.25;
pub(super) const ARRIVAL_MARGIN_FAST: f64 = 0.75;
/// Share of the room ahead that a listener waits for at most; the last page may not fit.
pub(super) const ROOM_SHARE: f64 = 0.9;
/// Duration for which the first burst is trusted: the window of the delivery-rate samples, which are better then.
pub(super) const OPENING_SECONDS: f64 = 10.0;
/// Pages of the first burst, which show a steady link, and the share of the bytes wanted in flight that is enough while
/// they arrive. With all of it the next page shared a link of 40 ms with the third one.
pub(super) const STEADY_BURST: usize = 3;
pub(super) const BURST_SHARE: f64 = 0.9;
/// The rate of a steady link varies by less than this.
pub(super) const STEADY_SPREAD: f64 = 0.1;
/// Audio in hand before playing starts from a steady link as fast as the audio; from a link twice as fast, a fifth of
/// it. It lasts while a lost page is read again; the link's surplus makes up for that only slowly.
pub(super) const STEADY_START_SECONDS: f64 = 2.85;
pub(super) const STEADY_START_POWER: f64 = 2.25;
/// The least audio in hand before playing starts from a steady link that is not fast.
pub(super) const STEADY_LEAST_SECONDS: f64 = 0.8;
/// The least bytes in hand for `STEADY_START_SECONDS`: pages are not smaller for slower audio.
pub(super) const STEADY_START_BYTES: f64 = 130_000.0;
/// A page on a steady link is late after two latencies and this share of the transfer of what is queued.
pub(super) const STEADY_LATE: f64 = 1.25;
