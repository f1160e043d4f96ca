//! `corprof record --push`, and the sampler alone: profiles of real applications arrive at a server of the tests' own.

use std::fs;

use corprof_tests::{ensure_or_longer, patiently};
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use prost::Message as _;
use protobuf::reflect::{FileDescriptor, ReflectValueRef};

use server::{Reply, Server};

use super::*;

#[allow(clippy::unwrap_used, reason = "a file of tests elsewhere")]
#[path = "../../../corprof-export/tests/read_back/push/server.rs"]
mod server;

/// What a profile says: how many samples and nanoseconds, and the names in its table of texts.
#[derive(Debug, Default)]
struct Sums {
    samples: i64,
    nanoseconds: i64,
    texts: Vec<String>,
}

impl Sums {
    fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.nanoseconds += other.nanoseconds;
        self.texts.extend(other.texts);
    }

    fn has(&self, text: &str) -> bool {
        self.texts.iter().any(|known| known.contains(text))
    }
}

/// Reads a pprof file, by a schema that shares nothing with the writer.
fn pprof(bytes: &[u8]) -> Result<Sums> {
    let mut content = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut content)?;
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../corprof-export/tests/read_back"));
    let mut parser = protobuf_parse::Parser::new();
    let descriptors = parser.pure().include(folder).input(folder.join("profile.proto")).file_descriptor_set()?;
    let file = FileDescriptor::new_dynamic(descriptors.file[0].clone(), &[])?;
    let profile = file.message_by_package_relative_name("Profile").context("no Profile")?.parse_from_bytes(&content)?;
    let field = |name: &str| profile.descriptor_dyn().field_by_name(name).context("no such field");
    let mut sums = Sums::default();
    for sample in field("sample")?.get_repeated(&*profile) {
        let ReflectValueRef::Message(sample) = sample else { anyhow::bail!("a sample is not a message") };
        let values = sample.descriptor_dyn().field_by_name("value").context("no values")?;
        let values: Vec<i64> = values.get_repeated(&*sample).into_iter().filter_map(|value| value.to_i64()).collect();
        ensure!(values.len() == 2, "{values:?}");
        sums.samples += values[0];
        sums.nanoseconds += values[1];
    }
    let texts = field("string_table")?;
    sums.texts = texts.get_repeated(&*profile).into_iter().filter_map(|text| Some(text.to_str()?.to_owned())).collect();
    Ok(sums)
}

/// The pprof file in a message: the only bytes in it that begin as gzip does, up to what follows it.
fn pprof_in(message: &[u8]) -> Result<Sums> {
    let start = message.windows(3).position(|three| three == [0x1f, 0x8b, 8]).context("no gzip")?;
    pprof(&message[start..])
}

/// Reads a request with OTLP profiles.
fn otlp(body: &[u8]) -> Result<Sums> {
    let mut content = Vec::new();
    flate2::read::GzDecoder::new(body).read_to_end(&mut content)?;
    let request = ExportProfilesServiceRequest::decode(content.as_slice())?;
    let mut texts = request.dictionary.context("no dictionary")?.string_table;
    let resource = &request.resource_profiles[0];
    let attributes = &resource.resource.as_ref().context("no resource")?.attributes;
    texts.extend(attributes.iter().map(|attribute| format!("{}={:?}", attribute.key, attribute.value)));
    let profiles = &resource.scope_profiles[0].profiles;
    let sums: Vec<i64> =
        profiles.iter().map(|profile| profile.samples.iter().flat_map(|sample| &sample.values).sum()).collect();
    ensure!(sums.len() == 2, "{sums:?}");
    Ok(Sums { samples: sums[0], nanoseconds: sums[1], texts })
}

fn has(body: &[u8], text: &str) -> bool {
    body.windows(text.len()).any(|window| window == text.as_bytes())
}

/// `corprof record OPTIONS -- Pool`, which computes for so long.
fn record(runtime: &Runtime, options: &[&str], milliseconds: u64) -> Result<Command> {
    let mut command = corprof()?;
    command.env("SAMPLER_PUSH_AUTHORIZATION", "Bearer s3cret").args(["record", "--rate", "200"]).args(options);
    command.arg("--").args(application(runtime, "Pool")?).args([&milliseconds.to_string(), "2", "100000"]);
    Ok(command)
}

#[test]
fn intervals_arrive_and_add_up_to_the_whole() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        for engine in ["pyroscope", "otlp"] {
            let server = Server::start(|_| Reply::Good);
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("whole.pb.gz");
            let url = server.url(engine);
            let path = file.display().to_string();
            let options =
                ["--push", &url, "--push-interval", "1", "--service", "shop", "--label", "region=eu", "-o", &path];
            let output = record(runtime, &options, 1700 * times)?.output()?;
            let (_, stderr) = texts(&output);
            ensure!(output.status.success(), "{output:?}");
            let requests = server.requests();
            // Also "1 profile sent to". A loss would be behind the address.
            ensure!(stderr.contains(&format!(" sent to {url}\n")), "{engine}: {}: {stderr}", requests.len());
            let mut parts = Sums::default();
            for request in &requests {
                ensure!(request.header("Authorization") == "Bearer s3cret", "{request:?}");
                ensure!(request.path.ends_with(if engine == "otlp" { "/profiles" } else { "/Push" }), "{request:?}");
                if engine == "otlp" {
                    parts.add(otlp(&request.body)?);
                } else {
                    ensure!(
                        ["service_name", "shop", "region", "eu", "process_cpu"]
                            .iter()
                            .all(|text| has(&request.body, text))
                    );
                    ensure!(has(&request.body, &format!(".NET {}", runtime.major)), "no version of the runtime");
                    parts.add(pprof_in(&request.body)?);
                }
            }
            let whole = pprof(&fs::read(&file)?)?;
            ensure!((parts.samples, parts.nanoseconds) == (whole.samples, whole.nanoseconds), "{parts:?} {whole:?}");
            // Intervals without samples are not sent, and a busy machine has some.
            ensure_or_longer!(requests.len() > 1, "{} messages", requests.len());
            ensure_or_longer!(parts.has("Pool.Sixty"), "not sampled: {parts:?}");
            if engine == "otlp" {
                let expected = ["service.name=", "region=", "process.pid=", "process.runtime.version=", "thread.name"];
                ensure!(expected.iter().all(|text| parts.has(text)), "{parts:?}");
            }
        }
        Ok(())
    })
}

/// Without the command, on every system.
#[test]
fn the_sampler_sends_by_itself() -> Result<()> {
    patiently(Runtime::all()?, |runtime, times| {
        let server = Server::start(|_| Reply::Good);
        let time = times * if runtime.is_slow() { 6000 } else { 2500 };
        let run = Run::new(runtime, "Shares").args([time.to_string()]).timeout(PATIENCE * 2).built_in("sampler");
        let run = run.env("SAMPLER_PUSH", server.url("otlp")).env("SAMPLER_PUSH_INTERVAL", "1");
        let outcome = run.env("SAMPLER_MODE", "wall").env("OTEL_SERVICE_NAME", "shares").run()?;
        outcome.exited_with(0)?;
        let requests = server.requests();
        ensure_or_longer!(requests.len() > 1, "{} messages: {outcome}", requests.len());
        let count = format!("{} profiles delivered, 0 lost", requests.len());
        ensure!(outcome.stderr.contains(&count) && !outcome.stderr.contains("written to"), "{outcome}");
        let mut parts = Sums::default();
        for request in requests {
            parts.add(otlp(&request.body)?);
        }
        ensure!(parts.has("service.name=") && parts.has("shares"), "{parts:?}");
        ensure_or_longer!(parts.has("Shares.Burn(int)"), "{parts:?}");
        Ok(())
    })
}

#[test]
fn a_process_that_runs_is_pushed_and_runs_on() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let server = Server::start(|_| Reply::Good);
        let folder = tempfile::tempdir()?;
        let mut program = diagnosed(runtime, None)?;
        let mut command = corprof()?;
        command.env("SAMPLER_PUSH_AUTHORIZATION", "Bearer s3cret").current_dir(folder.path());
        command.args([
            "record",
            "--mode",
            "wall",
            "--push-interval",
            "1",
            "--tenant",
            "team",
            "--push",
            &server.url("parca"),
        ]);
        command.args(["-p", &program.child.id().to_string(), "--duration", &(3 * times).to_string()]);
        let output = command.output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.success() && stderr.contains(" sent to parca+http://"), "{output:?}");
        // Without -o there is no file.
        ensure!(fs::read_dir(folder.path())?.next().is_none());
        let requests = server.requests();
        let mut parts = Sums::default();
        for request in &requests {
            ensure!(request.header("Authorization") == "Bearer s3cret" && request.header("X-Scope-OrgID") == "team");
            ensure!(has(&request.body, "wall") && has(&request.body, &program.child.id().to_string()));
            parts.add(pprof_in(&request.body)?);
        }
        ensure_or_longer!(requests.len() > 1, "{} messages: {stderr}", requests.len());
        ensure_or_longer!(parts.has("Diagnosed.Main"), "the main thread is not in it: {parts:?}");
        program.tell("throw 1")?;
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{stderr}");
        Ok(())
    })
}

#[test]
fn a_server_that_is_not_there_is_said_and_costs_the_application_nothing() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let silent = Server::start(|_| Reply::Never);
        for (url, said) in
            [("pyroscope+http://127.0.0.1:1".to_owned(), "refused"), (silent.url("parca"), "not sent within 3.0 s")]
        {
            let output = record(runtime, &["--push", &url, "--push-interval", "3600"], 500 * times)?.output()?;
            let (stdout, stderr) = texts(&output);
            // The application has done all its work.
            ensure!(stdout.lines().count() > 0, "{output:?}");
            ensure_or_longer!(!stderr.contains("0 profiles sent"), "no samples: {stderr}");
            ensure!(output.status.code() == Some(124), "{output:?}");
            let expected = format!("cannot send to {url}: ");
            ensure!(stderr.contains(&expected) && stderr.to_lowercase().contains(said), "{stderr}");
            ensure!(!stderr.contains("s3cret"), "{stderr}");
        }
        Ok(())
    })
}

#[test]
fn settings_are_checked_before_the_application_runs() -> Result<()> {
    for runtime in runtimes()? {
        for (variable, value, said) in [
            ("SAMPLER_PUSH", "http://localhost:4040", "pyroscope+http://HOST:4040"),
            ("SAMPLER_PUSH", "parca+https://localhost", "an agent beside the application"),
            ("SAMPLER_PUSH_LABELS", "region", "write NAME=VALUE"),
            ("SAMPLER_PUSH_INTERVAL", "0", "from 1 to 3600"),
        ] {
            let folder = tempfile::tempdir()?;
            let mut command = corprof()?;
            command.current_dir(folder.path()).env("SAMPLER_PUSH", "otlp+http://127.0.0.1:1");
            command.args(["run", "--require-load", "sampler", "--env", &format!("{variable}={value}"), "--"]);
            let output = command.args(application(&runtime, "Hello")?).arg("you").output()?;
            let (stdout, stderr) = texts(&output);
            // What the table says of a setting is checked before the application starts, and its form by the profiler.
            let (code, said_hello) = if value == "0" { (125, "") } else { (124, "Hello, you!\n") };
            ensure!(output.status.code() == Some(code) && stdout == said_hello, "{runtime}: {output:?}");
            ensure!(stderr.contains(&format!("{variable}={value}: ")) && stderr.contains(said), "{runtime}: {stderr}");
            let mut command = corprof()?;
            command.current_dir(folder.path()).env("SAMPLER_PUSH", "otlp+http://127.0.0.1:1");
            command.env("SAMPLER_PUSH_AUTHORIZATION", "s3cret\u{1}").args(["run", "--require-load", "sampler", "--"]);
            let output = command.args(application(&runtime, "Hello")?).output()?;
            let (_, stderr) = texts(&output);
            ensure!(stderr.contains("SAMPLER_PUSH_AUTHORIZATION=(hidden)") && !stderr.contains("s3cret"), "{stderr}");
        }
        let output = corprof()?
            .args(["record", "--push", "http://localhost:4040", "--"])
            .args(application(&runtime, "Hello")?)
            .output()?;
        ensure!(output.status.code() == Some(2) && output.stdout.is_empty(), "{runtime}: {output:?}");
        ensure!(texts(&output).1.contains("parca+http://HOST:7070"), "{runtime}: {output:?}");
    }
    Ok(())
}
