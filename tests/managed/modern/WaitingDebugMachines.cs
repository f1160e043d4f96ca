// target: 8.0
// option: -debug:embedded
// option: -optimize-
// code: WaitingMachines.cs
// As `WaitingMachines`, not optimised: its state machines are classes.
