//! Nothing: see the example of this package.
