//! An image of the command for containers (OCI image layout, in one file), for `kubectl debug` and for init containers.
//!
//! It consists of the command for musl, which is one static program with the profilers for glibc and musl in it, for
//! x64 and arm64. There is no system around it: it looks into the processes of others.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::COMMAND;
use super::archive::{Entry, time_of_commit};
use super::system::System;
use crate::arm64::{self, Qemu};
use crate::cargo::Metadata;
use crate::process::{self, note};
use crate::tools::{self, Packages};
use crate::wheel::hex;

/// The folder of the command in the image.
const FOLDER: &str = "usr/local/bin";

/// What reads images as registries and Kubernetes do.
const SKOPEO: Packages = Packages { what: "skopeo, which reads images", names: &["skopeo"] };

/// The command for one processor, and what goes with it.
pub(super) struct Part {
    pub(super) system: System,
    pub(super) entries: Vec<Entry>,
}

/// The processor of a system whose command the image takes, as images call it.
pub(super) fn architecture(system: System) -> Option<&'static str> {
    match system {
        System::LinuxMuslX64 => Some("amd64"),
        System::LinuxMuslArm64 => Some("arm64"),
        System::LinuxX64 | System::LinuxArm64 | System::WinX64 => None,
    }
}

/// A file of the layout that others name by its digest.
struct Blob {
    kind: &'static str,
    content: Vec<u8>,
}

impl Blob {
    fn json(kind: &'static str, value: &Value) -> Self {
        Self { kind, content: value.to_string().into_bytes() }
    }

    fn digest(&self) -> String {
        hex(&Sha256::digest(&self.content))
    }

    fn descriptor(&self) -> Value {
        let digest = format!("sha256:{}", self.digest());
        json!({ "mediaType": self.kind, "digest": digest, "size": self.content.len() })
    }
}

/// Writes the image into the folder `out`.
pub(super) fn write(metadata: &Metadata, parts: &[Part], out: &Path) -> Result<PathBuf> {
    let version = &metadata.package(COMMAND)?.version;
    let path = out.join(format!("corprof-{version}-oci.tar"));
    let mut blobs = Vec::new();
    let mut manifests = Vec::new();
    for part in parts {
        let architecture = architecture(part.system).context("not a system of the image")?;
        let tar = layer(&part.entries)?;
        let diff = format!("sha256:{}", hex(&Sha256::digest(&tar)));
        let layer = Blob { kind: "application/vnd.oci.image.layer.v1.tar+gzip", content: zipped(&tar)? };
        let config = Blob::json("application/vnd.oci.image.config.v1+json", &config(metadata, architecture, &diff)?);
        let manifest = Blob::json(
            "application/vnd.oci.image.manifest.v1+json",
            &json!({
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": config.descriptor(),
                "layers": [layer.descriptor()],
            }),
        );
        let mut descriptor = manifest.descriptor();
        descriptor["platform"] = json!({ "architecture": architecture, "os": "linux" });
        manifests.push(descriptor);
        blobs.extend([layer, config, manifest]);
    }
    const INDEX: &str = "application/vnd.oci.image.index.v1+json";
    let all = Blob::json(INDEX, &json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests }));
    let mut named = all.descriptor();
    named["annotations"] = json!({ "org.opencontainers.image.ref.name": version });
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [named] });
    blobs.push(all);

    let mut tar = tar::Builder::new(Vec::new());
    append(&mut tar, "oci-layout", 0o644, json!({ "imageLayoutVersion": "1.0.0" }).to_string().as_bytes())?;
    append(&mut tar, "index.json", 0o644, index.to_string().as_bytes())?;
    for blob in &blobs {
        append(&mut tar, &format!("blobs/sha256/{}", blob.digest()), 0o644, &blob.content)?;
    }
    fs::write(&path, tar.into_inner()?).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// What a container runtime starts, and for whom.
fn config(metadata: &Metadata, architecture: &str, diff: &str) -> Result<Value> {
    let package = metadata.package(COMMAND)?;
    Ok(json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Entrypoint": [format!("/{FOLDER}/corprof")],
            "Cmd": ["--help"],
            // Without a home there is no cache: the profilers are unpacked there.
            "Env": [format!("PATH=/{FOLDER}"), "CORPROF_CACHE=/tmp/corprof"],
            "WorkingDir": "/tmp",
            "Labels": {
                "org.opencontainers.image.title": "corprof",
                "org.opencontainers.image.version": package.version,
                "org.opencontainers.image.description": package.description,
                "org.opencontainers.image.licenses": package.license,
                "org.opencontainers.image.source": package.repository,
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [diff] },
    }))
}

/// The file system: the command, its papers, and a folder for temporary files.
fn layer(entries: &[Entry]) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut folder = header(0o1777);
    folder.set_entry_type(tar::EntryType::Directory);
    folder.set_size(0);
    tar.append_data(&mut folder, "tmp/", std::io::empty())?;
    for entry in entries {
        let folder = if entry.is_program { FOLDER } else { "usr/local/share/doc/corprof" };
        append(&mut tar, &format!("{folder}/{}", entry.name), entry.mode(), &entry.content)?;
    }
    Ok(tar.into_inner()?)
}

fn header(mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_mtime(time_of_commit());
    header
}

fn append(tar: &mut tar::Builder<Vec<u8>>, name: &str, mode: u32, content: &[u8]) -> Result<()> {
    let mut header = header(mode);
    header.set_size(content.len() as u64);
    Ok(tar.append_data(&mut header, name, content)?)
}

fn zipped(content: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    std::io::Write::write_all(&mut encoder, content)?;
    Ok(encoder.finish()?)
}

/// Has another program read the image, and starts the command in it as a container runtime would: with its files alone.
pub(super) fn check(image: &Path, parts: &[Part], scratch: &Path) -> Result<()> {
    if let Err(error) = tools::ensure_programs(&["skopeo"], &SKOPEO) {
        note(format_args!("SKIPPED: reading the image: {error:#}"));
        return Ok(());
    }
    for part in parts {
        let architecture = architecture(part.system).context("not a system of the image")?;
        let folder = scratch.join(architecture);
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
        }
        let root = folder.join("root");
        fs::create_dir_all(&root).with_context(|| format!("cannot make {}", root.display()))?;
        let copy = folder.join("copy");
        let mut skopeo = Command::new("skopeo");
        skopeo.args(["copy", "--insecure-policy", "--override-os", "linux", "--override-arch", architecture]);
        skopeo.arg(format!("oci-archive:{}", image.display())).arg(format!("dir:{}", copy.display()));
        process::output(&mut skopeo)?;
        unpack(&copy, &root)?;
        let said = match part.system {
            System::LinuxMuslX64 if process::is_root() => process::output(
                Command::new("chroot").arg(&root).arg(format!("/{FOLDER}/corprof")).args(["unpack", "/tmp/shared"]),
            )?,
            System::LinuxMuslArm64 if arm64::lacks().is_none() => {
                let mut command = Qemu::start(&root.join(FOLDER).join("corprof"));
                process::output(command.arg("unpack").arg(root.join("tmp/shared")))?
            }
            _ => {
                note(format_args!("SKIPPED: starting the command of the image for {architecture}"));
                continue;
            }
        };
        let libraries = fs::read_dir(root.join("tmp/shared")).context("the image unpacks no profilers")?.count();
        ensure!(libraries == 2 && said.contains("CORECLR_PROFILER_PATH="), "the image for {architecture}: {said}");
        note(format_args!("the image for {architecture} starts, and brings the profilers for glibc and musl"));
    }
    Ok(())
}

/// Unpacks the layers of an image that skopeo has copied into a folder.
fn unpack(copy: &Path, root: &Path) -> Result<()> {
    let manifest = copy.join("manifest.json");
    let manifest = fs::read(&manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
    let manifest: Value = serde_json::from_slice(&manifest).context("of the image's manifest")?;
    let layers = manifest["layers"].as_array().context("the manifest names no layers")?;
    for layer in layers {
        let digest = layer["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:"));
        let file = copy.join(digest.context("a layer without a digest")?);
        process::output(Command::new("tar").arg("-xzf").arg(file).arg("-C").arg(root))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::io::Read;

    use super::*;

    /// The files of an archive, by their names.
    fn files(tar: &[u8]) -> HashMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(tar);
        let mut files = HashMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            files.insert(name, content);
        }
        files
    }

    #[test]
    fn each_processor_has_its_command_by_digests() {
        let folder = tempfile::tempdir().unwrap();
        let part = |system: System, content: &[u8]| {
            let command = Entry { name: "corprof".into(), content: content.to_vec(), is_program: true };
            let license = Entry { name: "LICENSE-MIT".into(), content: b"text".to_vec(), is_program: false };
            Part { system, entries: vec![command, license] }
        };
        let parts = [part(System::LinuxMuslX64, b"x64"), part(System::LinuxMuslArm64, b"arm64")];
        let image = write(&Metadata::load().unwrap(), &parts, folder.path()).unwrap();
        let image = files(&fs::read(image).unwrap());
        let json = |content: &[u8]| serde_json::from_slice::<Value>(content).unwrap();
        // Reads what a descriptor names, as its reader must.
        let named = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
            let content = &image[&format!("blobs/sha256/{digest}")];
            assert_eq!(hex(&Sha256::digest(content)), digest);
            assert_eq!(descriptor["size"], content.len());
            content
        };
        assert_eq!(json(&image["oci-layout"])["imageLayoutVersion"], "1.0.0");
        let index = json(named(&json(&image["index.json"])["manifests"][0]));
        for (number, (architecture, command)) in [("amd64", "x64"), ("arm64", "arm64")].into_iter().enumerate() {
            let descriptor = &index["manifests"][number];
            assert_eq!(descriptor["platform"]["architecture"], architecture);
            let manifest = json(named(descriptor));
            let config = json(named(&manifest["config"]));
            assert_eq!(config["architecture"], architecture);
            assert_eq!(config["config"]["Entrypoint"][0], "/usr/local/bin/corprof");
            let mut layer = Vec::new();
            flate2::read::GzDecoder::new(&named(&manifest["layers"][0])[..]).read_to_end(&mut layer).unwrap();
            assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", hex(&Sha256::digest(&layer))));
            let layer = files(&layer);
            assert_eq!(layer["usr/local/bin/corprof"], command.as_bytes());
            assert!(layer.contains_key("tmp/") && layer.contains_key("usr/local/share/doc/corprof/LICENSE-MIT"));
        }
    }
}
