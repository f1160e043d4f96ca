//! Packages for `dotnet tool install`: those who work with .NET install the command as they install everything else.
//!
//! As .NET 10's SDK packs tools that are programs of a system: a package with the command for each system, and one
//! without, which users name and which lists the others. Earlier SDKs report that the tool needs a newer one.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::archive::{Entry, zipped};
use super::build::Built;
use super::system::System;
use super::{COMMAND, notices};
use crate::cargo::{Metadata, workspace_root};

/// The name of the package for users, of which the others' names are made, and of the command.
const NAME: &str = "corprof";

/// What all packages say of the tool.
pub(super) struct Tool<'m> {
    version: &'m str,
    description: &'m str,
    license: &'m str,
    repository: &'m str,
    systems: &'m [System],
}

impl<'m> Tool<'m> {
    /// What the manifest of the command says.
    pub(super) fn of(metadata: &'m Metadata, systems: &'m [System]) -> Result<Self> {
        let package = metadata.package(COMMAND)?;
        let known = |text: &'m Option<String>, what: &str| text.as_deref().with_context(|| format!("no {what}"));
        Ok(Self {
            version: &package.version,
            description: known(&package.description, "description")?,
            license: known(&package.license, "license")?,
            repository: known(&package.repository, "repository")?,
            systems,
        })
    }

    /// The same with another version.
    pub(super) fn with_version(self, version: &'m str) -> Self {
        Self { version, ..self }
    }

    fn file(&self, id: &str) -> String {
        format!("{id}.{}.nupkg", self.version)
    }

    /// The manifest of the package `id`.
    fn manifest(&self, id: &str, kind: &str) -> String {
        let Self { version, description, license, repository, .. } = self;
        format!(
            r#"<?xml version="1.0" encoding="utf-8"?>
<package xmlns="http://schemas.microsoft.com/packaging/2013/05/nuspec.xsd">
  <metadata>
    <id>{id}</id>
    <version>{version}</version>
    <authors>corprof</authors>
    <description>{description}</description>
    <license type="expression">{license}</license>
    <projectUrl>{repository}</projectUrl>
    <readme>README.md</readme>
    <repository type="git" url="{repository}" />
    <packageTypes>
      <packageType name="{kind}" />
    </packageTypes>
  </metadata>
</package>
"#
        )
    }
}

/// The name of the package for one system.
fn id(system: System) -> String {
    format!("{NAME}.{}", system.name())
}

/// Writes the package for one system into `out`.
pub(super) fn write(tool: &Tool<'_>, system: System, built: &Built, out: &Path) -> Result<PathBuf> {
    let command = system.command();
    let settings = settings(&format!(r#"<Command Name="{NAME}" EntryPoint="{command}" Runner="executable" />"#), "");
    let folder = format!("tools/any/{}", system.name());
    let content = fs::read(&built.command).with_context(|| format!("cannot read {}", built.command.display()))?;
    let own = [
        text(&format!("{folder}/DotnetToolSettings.xml"), settings),
        Entry { name: format!("{folder}/{command}"), content, is_program: true },
        text("THIRD-PARTY.txt", notices::of(system)?),
    ];
    pack(tool, &id(system), "DotnetToolRidPackage", own, out)
}

/// Writes the package that users name into `out`.
pub(super) fn write_pointer(tool: &Tool<'_>, out: &Path) -> Result<PathBuf> {
    let package = |system: &System| {
        format!(r#"    <RuntimeIdentifierPackage RuntimeIdentifier="{}" Id="{}" />"#, system.name(), id(*system))
    };
    let packages: Vec<_> = tool.systems.iter().map(package).collect();
    let packages = format!("  <RuntimeIdentifierPackages>\n{}\n  </RuntimeIdentifierPackages>\n", packages.join("\n"));
    let settings = settings(&format!(r#"<Command Name="{NAME}" />"#), &packages);
    pack(tool, NAME, "DotnetTool", [text("tools/any/any/DotnetToolSettings.xml", settings)], out)
}

fn settings(command: &str, packages: &str) -> String {
    format!(
        r#"<?xml version="1.0" encoding="utf-8"?>
<DotNetCliTool Version="2">
  <Commands>
    {command}
  </Commands>
{packages}</DotNetCliTool>
"#
    )
}

fn text(name: &str, content: impl Into<Vec<u8>>) -> Entry {
    Entry { name: name.to_owned(), content: content.into(), is_program: false }
}

/// Writes a package: a zip file with the parts that the Open Packaging Conventions want, and `own`.
fn pack(tool: &Tool<'_>, id: &str, kind: &str, own: impl IntoIterator<Item = Entry>, out: &Path) -> Result<PathBuf> {
    let readme = workspace_root().join(COMMAND).join("README.md");
    let readme = fs::read(&readme).with_context(|| format!("cannot read {}", readme.display()))?;
    let mut entries = vec![
        text("[Content_Types].xml", CONTENT_TYPES),
        text("_rels/.rels", relationships(id)),
        text(&format!("{id}.nuspec"), tool.manifest(id, kind)),
        text("README.md", readme),
    ];
    entries.extend(own);
    let path = out.join(tool.file(id));
    let content = zipped(entries.iter().map(|entry| (entry.name.clone(), entry)));
    let content = content.with_context(|| format!("cannot pack {}", path.display()))?;
    fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The parts' types, by their extensions; a part without extension, as the command is, has a default of its own.
const CONTENT_TYPES: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
  <Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml" />
  <Default Extension="nuspec" ContentType="application/octet" />
  <Default Extension="xml" ContentType="application/octet" />
  <Default Extension="md" ContentType="application/octet" />
  <Default Extension="txt" ContentType="application/octet" />
  <Default Extension="exe" ContentType="application/octet" />
  <Default Extension="" ContentType="application/octet" />
</Types>
"#;

fn relationships(id: &str) -> String {
    format!(
        r#"<?xml version="1.0" encoding="utf-8"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
  <Relationship Type="http://schemas.microsoft.com/packaging/2010/07/manifest" Target="/{id}.nuspec" Id="manifest" />
</Relationships>
"#
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::io::Read;

    use quick_xml::events::Event;

    use super::*;

    /// The entries of a package, by their names; checks that the XML ones are well-formed.
    fn unpack(package: &Path) -> BTreeMap<String, String> {
        let mut zip = zip::ZipArchive::new(File::open(package).unwrap()).unwrap();
        let mut texts = BTreeMap::new();
        for index in 0..zip.len() {
            let mut entry = zip.by_index(index).unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            texts.insert(entry.name().to_owned(), text);
        }
        for (name, text) in texts.iter().filter(|(name, _)| name.ends_with("ml") || name.ends_with("nuspec")) {
            let mut reader = quick_xml::Reader::from_str(text);
            while !matches!(reader.read_event().unwrap_or_else(|error| panic!("{name}: {error}")), Event::Eof) {}
        }
        texts
    }

    /// All elements `element`: their attributes as text.
    fn elements(text: &str, element: &str) -> Vec<BTreeMap<String, String>> {
        let mut reader = quick_xml::Reader::from_str(text);
        let mut found = Vec::new();
        loop {
            match reader.read_event().unwrap() {
                Event::Eof => return found,
                Event::Empty(tag) if tag.name().as_ref() == element.as_bytes() => {
                    let attributes = tag.attributes().map(|attribute| {
                        let attribute = attribute.unwrap();
                        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                        (text(attribute.key.as_ref()), text(&attribute.value))
                    });
                    found.push(attributes.collect());
                }
                _ => {}
            }
        }
    }

    #[test]
    fn the_sdk_finds_the_command_for_its_system() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path();
        let systems = [System::LinuxX64, System::WinX64];
        let metadata = Metadata::load().unwrap();
        let tool = Tool::of(&metadata, &systems).unwrap().with_version("1.2.3");
        let command = out.join("command");
        fs::write(&command, "the command").unwrap();
        let built = Built { command, library: out.join("none") };

        // As `dotnet tool install corprof` does: the pointer names the package for this system …
        let pointer = unpack(&write_pointer(&tool, out).unwrap());
        assert!(pointer["corprof.nuspec"].contains(r#"<packageType name="DotnetTool" />"#));
        let listed = elements(&pointer["tools/any/any/DotnetToolSettings.xml"], "RuntimeIdentifierPackage");
        assert_eq!(listed.len(), systems.len());
        for (system, listed) in systems.into_iter().zip(listed) {
            assert_eq!(listed["RuntimeIdentifier"], system.name());
            // … which is a file of that name and version, and has the settings and the program in the folder of the
            // system.
            let package = write(&tool, system, &built, out).unwrap();
            assert_eq!(package.file_name().unwrap().to_str().unwrap(), format!("{}.1.2.3.nupkg", listed["Id"]));
            let package = unpack(&package);
            let manifest = &package[&format!("{}.nuspec", listed["Id"])];
            assert!(manifest.contains(&format!("<id>{}</id>", listed["Id"])), "{manifest}");
            assert!(manifest.contains(r#"<packageType name="DotnetToolRidPackage" />"#), "{manifest}");
            let folder = format!("tools/any/{}", system.name());
            let command = &elements(&package[&format!("{folder}/DotnetToolSettings.xml")], "Command")[0];
            assert_eq!((command["Name"].as_str(), command["Runner"].as_str()), ("corprof", "executable"));
            assert_eq!(package[&format!("{folder}/{}", command["EntryPoint"])], "the command");
            assert!(package.contains_key("[Content_Types].xml") && package.contains_key("_rels/.rels"));
        }
    }
}
