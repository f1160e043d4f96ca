//! The set-ups in which a process may be found, and the test of each: who runs it, where, beside what, and how the
//! command or the process may end. Each is a quick or a long test; [`long::all_in_a_row`] runs them all.

use super::*;

/// A set-up, and the file and the name of its test.
const SET_UPS: [(&str, &str, &str); 20] = [
    ("a container (mount and pid namespaces), from the host", "any_process", "a_container_shows_its_stacks"),
    ("a container by pivot_root, every command", "any_process", "a_container_by_pivot_root"),
    ("a container by chroot, every command", "any_process", "a_container_by_chroot"),
    ("a container without rights", "any_process", "a_container_without_rights"),
    ("a service with PrivateTmp", "any_process", "a_service_with_a_private_folder_for_temporary_files"),
    ("a pid namespace of its own", "any_process", "a_process_in_a_pid_namespace_of_its_own"),
    ("root's command, another user's service", "any_process", "a_service_of_another_user_by_root"),
    ("another user's service that is killed meanwhile", "any_process", "a_service_of_another_user_that_is_killed"),
    ("another user's process, without rights", "any_process", "a_process_of_another_user_without_rights"),
    ("musl in the process, glibc in the command", "any_process", "a_process_with_musl_by_the_command_for_glibc"),
    ("another maker's profiler in the process", "foreign_profiler", "the_shares_of_methods_are_recorded"),
    ("half a processor", "quota", "half_a_processor_is_told_and_the_shares_are_right"),
    ("a quarter of a processor, 512 MB", "quota", "a_quarter_of_a_processor_and_512_megabytes_are_enough"),
    ("kill -9 of the command", "ends", "the_profiler_of_a_killed_command_writes_what_it_has_and_leaves"),
    ("a lost terminal (SIGHUP)", "ends", "a_lost_terminal_does_not_cost_the_profile"),
    ("Ctrl-C twice", "ends", "a_second_interrupt_ends_the_command_and_the_profiler_writes_later"),
    ("a full disk", "recording", "a_full_disk_ends_the_recording_and_not_the_application"),
    ("an application that dies", "ends", "an_application_that_dies_leaves_a_profile_and_its_exit_code"),
    ("a process between fork and exec", "ends", "a_child_has_its_own_command_line"),
    ("a snapshot of the heap that is interrupted", "heap", "a_snapshot_can_be_interrupted"),
];

#[test]
fn each_set_up_has_a_test() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("live/cli");
    for (set_up, file, test) in SET_UPS {
        let source = fs::read_to_string(folder.join(file).with_extension("rs"))?;
        let declaration = format!("#[test]\nfn {test}()");
        let is_there = source.lines().map(str::trim_start).collect::<Vec<_>>().join("\n").contains(&declaration);
        ensure!(is_there, "{set_up}: there is no test {test} in {file}.rs");
    }
    Ok(())
}

mod long {
    use super::*;

    /// Runs the tests of all set-ups, one after the other, and prints the table of the book. What this system cannot
    /// make is skipped, and counted apart.
    #[test]
    #[ignore = "takes minutes: cargo xtask test --live-only --runtime 11 -- --ignored set_ups --nocapture"]
    fn all_in_a_row() -> Result<()> {
        let tests = Command::new(env::current_exe()?).args(["--list", "--format", "terse"]).output()?;
        let (tests, _) = texts(&tests);
        let mut wrong = Vec::new();
        let mut skipped_rows = 0;
        println!("| set-up | result | seconds |\n|---|---|---|");
        for (set_up, file, test) in SET_UPS {
            let of_file = |name: &&str| name.contains(&format!("::{file}::")) && name.ends_with(&format!("::{test}"));
            let mut names = tests.lines().filter_map(|line| line.strip_suffix(": test"));
            let name = names.find(of_file).with_context(|| format!("no test {test} in {file}.rs"))?;
            let start = Instant::now();
            let output = Command::new(env::current_exe()?).args(["--exact", name, "--nocapture"]).output()?;
            let (stdout, stderr) = texts(&output);
            let why_skipped = stdout.lines().chain(stderr.lines()).find(|line| line.starts_with("SKIPPED: "));
            let result = match (output.status.success(), why_skipped) {
                (true, None) => "right",
                (true, Some(why)) => why,
                (false, _) => "WRONG",
            };
            match result {
                "right" => {}
                "WRONG" => wrong.push(format!("{set_up}:\n{stdout}{stderr}")),
                _ => skipped_rows += 1,
            }
            println!("| {set_up} | {result} | {:.1} |", start.elapsed().as_secs_f64());
        }
        let right = SET_UPS.len() - skipped_rows - wrong.len();
        println!("{right} of {} are right, {skipped_rows} skipped, {} wrong", SET_UPS.len(), wrong.len());
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    }
}
