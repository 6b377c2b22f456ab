// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Compares bindings.rs with the C headers of this repository: names, signatures, and, by a C
//! program, the values of constants and the layouts of structs. After a change of a header run
//! bindgen.sh.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use vescomm_sys::*;

const BINDINGS: &str = include_str!("../src/bindings.rs");
const FOLDERS: [&str; 2] = ["libvescomm/include", "planner/include"];
/// The headers, each with the number of its folder.
const HEADERS: [(usize, &str); 4] =
    [(0, "vescomm.h"), (0, "gpu.h"), (0, "gpu_kernels.h"), (1, "planner.h")];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// All headers, without comments.
fn headers() -> String {
    let mut text = String::new();
    for (folder, name) in HEADERS {
        let path = repository().join(FOLDERS[folder]).join("vescomm").join(name);
        text += &fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    }
    let mut code = String::new();
    let mut rest = text.as_str();
    while let Some(begin) = rest.find("/*") {
        code += &rest[..begin];
        rest = &rest[begin + rest[begin..].find("*/").unwrap() + 2..];
    }
    code + rest
}

/// `const char **text` as `*mut *const c_char`, `char *const *texts` as `*const *mut c_char`.
fn rust_type(declaration: &str) -> String {
    let tight = declaration.replace('*', " * ");
    let mut words: Vec<&str> = tight.split_whitespace().collect();
    let mut constant = words[0] == "const";
    if constant {
        words.remove(0);
    }
    let mut made = match words[0] {
        "void" => "c_void",
        "char" => "c_char",
        "int" => "c_int",
        "int32_t" => "i32",
        "uint8_t" => "u8",
        "int64_t" => "i64",
        "uint64_t" => "u64",
        "size_t" => "usize",
        "double" => "f64",
        "float" => "f32",
        other => other,
    }
    .to_string();
    for word in &words[1..] {
        if *word == "*" {
            made = format!("*{} {made}", if constant { "const" } else { "mut" });
        }
        // It is about the target of the next pointer.
        constant = *word == "const";
    }
    made
}

/// `name(types) -> type` of every function of the headers.
fn declared_functions() -> BTreeSet<String> {
    let code = headers();
    let mut found = BTreeSet::new();
    // The first part ends with the macro's own definition.
    for part in
        code.split("VESCOMM_API ").skip(1).filter(|part| part.starts_with(char::is_alphabetic))
    {
        let (declaration, _) = part.split_once(';').unwrap();
        let (head, parameters) = declaration.split_once('(').unwrap();
        let name = head.split(|c: char| c.is_whitespace() || c == '*').next_back().unwrap();
        let result = rust_type(head.strip_suffix(name).unwrap());
        let parameters = parameters.trim_end().strip_suffix(')').unwrap();
        let types: Vec<String> = match parameters.trim() {
            "void" => Vec::new(),
            several => several.split(',').map(rust_type).collect(),
        };
        found.insert(format!("{name}({}) -> {result}", types.join(", ")));
    }
    found
}

fn bound_functions() -> BTreeSet<String> {
    let tight = BINDINGS.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut found = BTreeSet::new();
    for part in tight.split("pub fn ").skip(1) {
        let (name, rest) = part.split_once('(').unwrap();
        let (parameters, rest) = rest.split_once(')').unwrap();
        let (result, _) = rest.split_once(';').unwrap();
        let parameters = parameters.replace("::std::os::raw::", "");
        let types: Vec<&str> =
            parameters.split(',').filter_map(|one| Some(one.split_once(": ")?.1.trim())).collect();
        let result = result.replace("::std::os::raw::", "");
        found.insert(format!("{name}({}){result}", types.join(", ")));
    }
    found
}

#[test]
fn every_function_of_the_headers_has_the_same_signature_here() {
    let (declared, bound) = (declared_functions(), bound_functions());
    assert!(declared.len() > 105, "{declared:?}");
    let missing: Vec<_> = declared.difference(&bound).collect();
    let gone: Vec<_> = bound.difference(&declared).collect();
    assert!(missing.is_empty() && gone.is_empty(), "run bindgen.sh: {missing:#?} and {gone:#?}");
}

/// `pub const NAME: type = value;`
fn bound_constants() -> BTreeMap<&'static str, i64> {
    let constants = BINDINGS.lines().filter_map(|line| line.strip_prefix("pub const "));
    constants
        .map(|line| {
            let (name, rest) = line.split_once(": ").unwrap();
            let (_, value) = rest.split_once(" = ").unwrap();
            (name, value.trim_end_matches(';').parse().unwrap())
        })
        .collect()
}

#[test]
fn every_constant_of_the_headers_is_here() {
    let code = headers();
    let declared: BTreeSet<&str> = code
        .lines()
        .filter_map(|line| line.strip_prefix("#define VESCOMM_"))
        .filter_map(|rest| rest.split_once(' '))
        .filter(|(_, value)| value.ends_with(|c: char| c == ')' || c.is_ascii_digit()))
        .filter(|(name, _)| !name.starts_with("API"))
        .map(|(name, _)| name)
        .collect();
    let bound: BTreeSet<&str> =
        bound_constants().keys().map(|name| name.strip_prefix("VESCOMM_").unwrap()).collect();
    assert!(declared.len() > 50);
    assert_eq!(declared, bound, "run bindgen.sh");
}

/// Every struct of bindings.rs with its members.
fn bound_structs() -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut found = BTreeMap::new();
    for part in BINDINGS.split("pub struct ").skip(1) {
        let (name, rest) = part.split_once(" {").unwrap();
        let (members, _) = rest.split_once("\n}").unwrap();
        if members.contains("_unused") {
            continue; // an object behind a pointer
        }
        let lines = members.lines().filter_map(|line| line.trim().strip_prefix("pub "));
        found.insert(name, lines.map(|line| line.split_once(':').unwrap().0).collect());
    }
    found
}

macro_rules! layouts {
    ($($structure:ident { $($member:ident),* })*) => {{
        let mut found: BTreeMap<&str, StructLayout> = BTreeMap::new();
        $({
            let made = std::mem::MaybeUninit::<$structure>::uninit();
            let at = made.as_ptr();
            let offsets = vec![$((
                stringify!($member),
                // SAFETY: the address is computed; nothing is read.
                unsafe { std::ptr::addr_of!((*at).$member) as usize - at as usize },
            )),*];
            found.insert(
                stringify!($structure),
                (std::mem::size_of::<$structure>(), std::mem::align_of::<$structure>(), offsets),
            );
        })*
        found
    }};
}

/// Size and alignment of a struct, and the offsets of its members.
type StructLayout = (usize, usize, Vec<(&'static str, usize)>);

fn rust_layouts() -> BTreeMap<&'static str, StructLayout> {
    layouts! {
        vescomm_comm_options {
            struct_size, reserved, timeout_seconds, node, reproducible, reserved_2, tag
        }
        vescomm_comm_info {
            struct_size, rank, ranks, node, nodes, local_rank, local_ranks, reserved,
            timeout_seconds
        }
        vescomm_comm_counters {
            struct_size, reserved, operations, bytes_written, bytes_reduced, bytes_sent, sleeps,
            busy_seconds, waiting_seconds, bytes_registered
        }
        vescomm_tensor {
            struct_size, dimensions, name, shape, offset, block, batch_dimensions, reserved
        }
        vescomm_layout_info { struct_size, ranks, elements, padding, largest, tensors, hash }
        vescomm_piece { tensor, first, elements, offset }
        vescomm_memory_options { struct_size, kind, sharing, reserved, bytes, partial_bytes }
        vescomm_buffer_options { struct_size, type_, memory, offset_bytes, kind, sharing, name }
        vescomm_view { data, elements }
        vescomm_request_options { struct_size, op, root, type_, source, output, algorithm, factor }
        vescomm_message_info { struct_size, source, tag, type_, count }
        vescomm_call_options { struct_size, tag, factor, algorithm }
        vescomm_trace_argument { name, text, number }
        vescomm_gpu_comm_options {
            struct_size, min_ctas, max_ctas, shrinkable, workspace_bytes, method, nccl_comm,
            nccl_config
        }
        vescomm_gpu_comm_info { struct_size, device, nccl_version, derived }
        vescomm_gpu_buffer_options {
            struct_size, type_, memory, offset_bytes, placement, any_cuts, name
        }
        vescomm_gpu_piece { target, source, count }
        vescomm_gpu_clip { norm, factor, skip }
        vescomm_gpu_adamw_options {
            struct_size, gradient_scale, learning_rate, beta1, beta2, epsilon, weight_decay, step,
            parameter_type, stochastic, random_stream, random_first
        }
        vescomm_gpu_sgd_options {
            struct_size, gradient_scale, learning_rate, momentum, dampening, weight_decay, step,
            nesterov, decoupled, parameter_type, stochastic, random_stream, random_first
        }
        vescomm_planner_tensor {
            struct_size, dimensions, name, shape, block_rows, batch_dimensions, reserved, alignment
        }
        vescomm_planner_options {
            struct_size, mode, start_alignment, cut_alignment, shard_limit, weights, search_steps,
            unit_imbalance, work, reserved, bytes_per_second, seconds_per_collective,
            seconds_per_unequal
        }
        vescomm_planner_figures {
            struct_size, optimal, elements, padding, largest_shard, lower_bound, mean_shard, order,
            largest_over_share, steps, lower_bound_over_share
        }
        vescomm_planner_unit { struct_size, type_, name, tensors, count }
        vescomm_planner_totals {
            struct_size, feasible, mode, reserved, bytes, padding_bytes, largest_rank_bytes,
            lower_bound_bytes, mean_rank_bytes, largest_over_share, largest_rank_cost_over_mean,
            lower_bound_cost_over_mean, wire_bytes_per_step, seconds_per_step
        }
    }
}

/// Lines `name value`, as Rust sees them.
fn seen_by_rust() -> String {
    let mut lines = String::new();
    for (name, value) in bound_constants() {
        writeln!(lines, "{name} {value}").unwrap();
    }
    let adamw = vescomm_gpu_adamw_options_init();
    let settings = [adamw.learning_rate, adamw.beta1, adamw.beta2, adamw.epsilon]
        .map(|setting| (setting * 1e10) as i64);
    let others = (adamw.gradient_scale as i64, (adamw.weight_decay * 1e10) as i64, adamw.step);
    writeln!(lines, "adamw {settings:?} {others:?} {}", adamw.struct_size).unwrap();
    let sgd = vescomm_gpu_sgd_options_init();
    let settings = [sgd.learning_rate, sgd.momentum, sgd.dampening, sgd.weight_decay]
        .map(|setting| (setting * 1e10) as i64);
    let others = (sgd.gradient_scale as i64, sgd.step, sgd.nesterov, sgd.decoupled);
    writeln!(lines, "sgd {settings:?} {others:?} {}", sgd.struct_size).unwrap();
    for (structure, (size, alignment, members)) in rust_layouts() {
        writeln!(lines, "{structure} {size} {alignment}").unwrap();
        for (member, offset) in members {
            writeln!(lines, "{structure}.{member} {offset}").unwrap();
        }
    }
    lines
}

const OPTIMIZER_DEFAULTS: &str = r#"
    vescomm_gpu_adamw_options_t o = vescomm_gpu_adamw_options_init();
    printf("adamw [%lld, %lld, %lld, %lld] (%lld, %lld, %lld) %u\n",
           (long long)(o.learning_rate * 1e10), (long long)(o.beta1 * 1e10),
           (long long)(o.beta2 * 1e10), (long long)(o.epsilon * 1e10),
           (long long)o.gradient_scale, (long long)(o.weight_decay * 1e10), (long long)o.step,
           (unsigned)o.struct_size);
    vescomm_gpu_sgd_options_t s = vescomm_gpu_sgd_options_init();
    printf("sgd [%lld, %lld, %lld, %lld] (%lld, %lld, %d, %d) %u\n",
           (long long)(s.learning_rate * 1e10), (long long)(s.momentum * 1e10),
           (long long)(s.dampening * 1e10), (long long)(s.weight_decay * 1e10),
           (long long)s.gradient_scale, (long long)s.step, s.nesterov, s.decoupled,
           (unsigned)s.struct_size);
"#;

/// A C program that prints the same lines.
fn c_program() -> String {
    let mut body = String::new();
    for name in bound_constants().keys() {
        writeln!(body, "    printf(\"{name} %lld\\n\", (long long){name});").unwrap();
    }
    body += OPTIMIZER_DEFAULTS;
    for (structure, (_, _, members)) in rust_layouts() {
        writeln!(
            body,
            "    struct align_{structure} {{ char c; struct {structure} s; }};\n    \
             printf(\"{structure} %zu %zu\\n\", sizeof(struct {structure}), \
             offsetof(struct align_{structure}, s));"
        )
        .unwrap();
        for (member, _) in members {
            let in_c = member.trim_end_matches('_');
            writeln!(
                body,
                "    printf(\"{structure}.{member} %zu\\n\", \
                 offsetof(struct {structure}, {in_c}));"
            )
            .unwrap();
        }
    }
    let includes: String =
        HEADERS.iter().map(|(_, name)| format!("#include <vescomm/{name}>\n")).collect();
    format!("#include <stdio.h>\n{includes}int main(void) {{\n{body}return 0;\n}}\n")
}

#[test]
fn constants_and_structs_are_those_of_the_c_compiler() {
    let listed: BTreeMap<_, Vec<_>> = rust_layouts()
        .into_iter()
        .map(|(name, (_, _, members))| (name, members.into_iter().map(|(m, _)| m).collect()))
        .collect();
    assert_eq!(listed, bound_structs(), "rust_layouts() lacks a struct or a member");

    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (folder.join("abi.c"), folder.join("abi"));
    fs::write(&source, c_program()).unwrap();
    let mut compiler = Command::new(env::var("CC").unwrap_or_else(|_| "cc".to_string()));
    for one in FOLDERS {
        compiler.arg("-I").arg(repository().join(one));
    }
    match compiler.args(["-std=c99", "-o"]).arg(&program).arg(&source).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("skipped: there is no C compiler");
            return;
        }
        done => {
            let done = done.unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
    }
    let printed = Command::new(&program).output().unwrap();
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), seen_by_rust());
}

#[test]
fn inline_functions_return_what_those_of_c_return() {
    let unit = vescomm_planner_unit_init();
    assert_eq!(
        (unit.struct_size as usize, unit.type_),
        (std::mem::size_of_val(&unit), VESCOMM_BF16)
    );
    let options = vescomm_request_options_init();
    assert_eq!(options.struct_size as usize, std::mem::size_of_val(&options));
    assert!(options.source.is_null() && options.op == VESCOMM_SUM);
    let sizes: Vec<usize> = (0..=18).map(vescomm_type_get_bytes).collect();
    assert_eq!(sizes, [0, 4, 2, 2, 8, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 1, 8, 16, 0]);
}

#[test]
fn the_library_that_is_linked_has_the_version_of_the_header() {
    // SAFETY: the function returns a constant string.
    let version = unsafe { std::ffi::CStr::from_ptr(vescomm_get_version()) };
    let numbers = [VESCOMM_VERSION_MAJOR, VESCOMM_VERSION_MINOR, VESCOMM_VERSION_PATCH];
    assert_eq!(version.to_str().unwrap(), numbers.map(|number| number.to_string()).join("."));
    // SAFETY: the planner is linked too; the string is valid until its next call here.
    let explained = unsafe { std::ffi::CStr::from_ptr(vescomm_plan_explain()) };
    assert_eq!(explained.to_bytes(), b"");
}
