// target: 8.0
// option: -optimize-
// code: Captured.cs
// As `Captured`, not optimised: the state machines of async methods are classes, beside their boxes.
