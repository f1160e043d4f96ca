// target: 8.0
// option: -debug:embedded
// option: -define:LISTENER
// code: Clinic.cs
// As `Clinic`, without ASP.NET: for runtimes that have none.
