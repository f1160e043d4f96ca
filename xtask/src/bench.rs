//! `cargo xtask bench`: what a corprof profiler costs, as ratios to a profiler in C that does the same.
