//! Nothing: see the test of this package.
