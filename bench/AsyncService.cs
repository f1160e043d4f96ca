// target: 10.0
// framework: aspnet
// option: -debug:embedded
// option: -features:runtime-async=on
// option: -nowarn:SYSLIB5007
// code: Service.cs
// The web service for measurements, with async methods that the runtime itself suspends. On .NET 10 they run with
// DOTNET_RuntimeAsync=1 only.
