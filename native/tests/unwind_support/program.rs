//! Writes, builds and knows the program `calls.c`: which function may call which.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Number of generated functions.
const FUNCTIONS: usize = 48;

/// Edges (caller, callee) and the text of the functions.
pub struct Program {
    text: String,
    callees: HashMap<String, HashSet<String>>,
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

impl Program {
    /// The same program each time.
    pub fn generate() -> Program {
        let mut random = Random(4);
        let mut callees: HashMap<String, HashSet<String>> = HashMap::new();
        let mut text = String::new();
        for index in (0..FUNCTIONS).rev() {
            let own = callees.entry(format!("fn_{index}")).or_default();
            let mut body = String::new();
            let shape = if index + 4 >= FUNCTIONS { 0 } else { random.below(6) };
            match shape {
                // A leaf that keeps all registers busy.
                0 => {
                    body += "word a = x, b = ~x, c = x * 3; for (int i = 0; i < 30; i++) { a ^= b << 3; b += c >> 5; c ^= a; } x += a + b + c;\n"
                }
                // A large frame.
                1 => body += "volatile word room[600]; room[x % 600] = x; x += room[x % 600];\n",
                // A frame of unknown size: a frame pointer is needed.
                2 => body += "volatile char *room = alloca(x % 500 + 16); room[0] = (char)x; x += (word)room[0];\n",
                // Aligned slots: the stack is realigned.
                3 => body += "volatile word wide[8] __attribute__((aligned(64))); wide[x % 8] = x; x += wide[x % 8];\n",
                // Recursion.
                4 => {
                    own.insert(format!("fn_{index}"));
                    let _ = writeln!(body, "if (depth > 0) x += fn_{index}(x + 1, depth - 1) + 1;");
                }
                _ => {}
            }
            if shape != 0 {
                for _ in 0..1 + random.below(2) {
                    let callee = index + 1 + random.below((FUNCTIONS - index - 1).min(9) as u64) as usize;
                    own.insert(format!("fn_{callee}"));
                    let _ =
                        writeln!(body, "if ((x >> {}) & 1) x += fn_{callee}(x ^ {callee}, depth) + 1;", callee % 13);
                }
            }
            let _ = writeln!(
                text,
                "KNOWN word fn_{index}(word x, int depth) {{ (void)depth;\n{body}return x + {index}; }}"
            );
        }
        for (caller, named) in [
            ("run_calls", &["fn_0"][..]),
            ("handler_work", &["fn_20"]),
            ("nested_handler", &["handler_work"]),
            ("outer_handler", &["handler_work", "raise", "*"]),
            ("handle", &["run_calls", "*"]),
            ("run_clocks", &["*"]),
            ("worker", &["run_calls"]),
            ("run_threads", &["run_calls", "*"]),
            ("called_by_jit", &["fn_20", "fn_30"]),
            ("run_jit", &["*"]),
            ("main", &["run_calls", "handle", "run_clocks", "run_threads", "run_jit", "*"]),
        ] {
            callees.insert(caller.to_string(), named.iter().map(|name| name.to_string()).collect());
        }
        Program { text, callees }
    }

    /// Whether the callees that are written down say nothing against this call; an unknown name may call anything.
    pub fn may_call(&self, caller: &str, callee: &str) -> bool {
        match self.callees.get(caller) {
            Some(callees) => callees.contains(callee) || (callees.contains("*") && !self.callees.contains_key(callee)),
            // No function of ours is called by what is not ours, but these.
            None => {
                !self.callees.contains_key(callee)
                    || matches!(callee, "main" | "worker" | "outer_handler" | "nested_handler" | "called_by_jit")
            }
        }
    }

    /// Whether the name is one of the program's.
    pub fn knows(&self, name: &str) -> bool {
        self.callees.contains_key(name)
    }

    /// Builds it with these options, once for each name.
    pub fn build(&self, name: &str, options: &[&str]) -> PathBuf {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let header = folder.join(format!("{name}.inc"));
        let binary = folder.join(format!("calls-{name}"));
        std::fs::write(&header, &self.text).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/targets/native/calls.c");
        let output = Command::new("gcc")
            .args(options)
            .arg("-pthread")
            .arg("-w")
            .arg(format!("-DGENERATED=\"{}\"", header.display()))
            .arg(source)
            .arg("-o")
            .arg(&binary)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        binary
    }
}
