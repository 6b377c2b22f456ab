// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Asks the program pkg-config how to link libvescomm and libvescomm-planner.

use std::env;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{exit, Command};

const PACKAGE: &str = "vescomm-planner"; // requires the other one
const PACKAGES: [&str; 2] = [PACKAGE, "vescomm"];
const MIN_VERSION: &str = "0.1.0";

const HOW: &str =
    "install vescomm (meson install -C build), and set PKG_CONFIG_PATH to the folder \
                   of vescomm.pc if that is not a folder of the system";

fn fail(sentence: &str) -> ! {
    eprintln!("vescomm-sys: {sentence}");
    exit(1)
}

fn pkg_config(arguments: &[&str]) -> String {
    let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_string());
    let output = match Command::new(&program).args(arguments).output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => fail(&format!(
            "there is no program {program:?}, which finds libvescomm; install it (Debian: \
             pkg-config), or set PKG_CONFIG to its path"
        )),
        Err(error) => fail(&format!("{program:?} cannot be run: {error}")),
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        fail(&format!("{program} {} failed: {}\n{HOW}", arguments.join(" "), said.trim()));
    }
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Splits the output of pkg-config, in which a backslash protects the next character.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => words.last_mut().unwrap().extend(characters.next()),
            space if space.is_whitespace() => words.push(String::new()),
            other => words.last_mut().unwrap().push(other),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Lets cargo run this script again when the files of the packages change.
fn watch_packages() {
    for package in PACKAGES {
        let folder = pkg_config(&["--variable=pcfiledir", package]);
        for name in [format!("{package}.pc"), format!("{package}-uninstalled.pc")] {
            let file = Path::new(folder.trim()).join(name);
            // Cargo takes a file that does not exist for a change.
            if file.exists() {
                println!("cargo:rerun-if-changed={}", file.display());
            }
        }
    }
}

fn main() {
    for variable in
        ["PKG_CONFIG", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR", "PKG_CONFIG_SYSROOT_DIR", "DOCS_RS"]
    {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("DOCS_RS").is_some() {
        return; // documentation only: nothing is linked
    }
    let at_least = format!("{PACKAGE} >= {MIN_VERSION}");
    for word in words(&pkg_config(&["--libs", &at_least])) {
        if let Some(folder) = word.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
        } else if let Some(library) = word.strip_prefix("-l") {
            println!("cargo:rustc-link-lib={library}");
        } else {
            println!("cargo:rustc-link-arg={word}");
        }
    }
    watch_packages();
    // For the build scripts of crates that depend on this one: DEP_VESCOMM_VERSION.
    println!("cargo:version={}", pkg_config(&["--modversion", PACKAGE]).trim());
}
