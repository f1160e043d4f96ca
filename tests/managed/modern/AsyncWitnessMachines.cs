// target: 8.0
// code: AsyncWitness.cs
// As `AsyncWitness`, with state machines.
