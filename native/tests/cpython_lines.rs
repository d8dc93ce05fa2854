//! Line tables decoded here against `PyCode_Addr2Line` of the interpreter that made them.

mod cpython_support;

use _native::runtime::cpython::Lines;
use cpython_support::interpreters;

#[test]
fn every_instruction_has_the_line_that_its_interpreter_says() {
    for interpreter in interpreters() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cpython_targets/lines.py");
        let output = std::process::Command::new(&interpreter.path).arg(script).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.ends_with("end\n"), "{}", String::from_utf8_lossy(&output.stderr));
        let minor: u8 = interpreter.version.split('.').nth(1).unwrap().parse().unwrap();
        let (mut codes, mut checked) = (0, 0);
        for record in text.lines().filter(|line| *line != "end") {
            let [first, table, size, runs] = record.split(' ').collect::<Vec<_>>()[..] else { panic!("{record}") };
            let bytes = table.as_bytes().chunks_exact(2).map(|pair| std::str::from_utf8(pair).unwrap());
            let table: Vec<u8> = bytes.map(|hex| u8::from_str_radix(hex, 16).unwrap()).collect();
            let lines = Lines::decode(minor, &table, first.parse().unwrap());
            let mut runs = runs.split(',').map(|run| run.split_once(':').unwrap()).peekable();
            let mut expected = 0;
            for offset in (0..size.parse().unwrap()).step_by(2) {
                if let Some((_, line)) = runs.next_if(|(start, _)| start.parse::<u32>() == Ok(offset)) {
                    expected = line.parse().unwrap();
                }
                assert_eq!(lines.line(offset).unwrap_or(0), expected, "{}: {offset} of {record}", interpreter.version);
                checked += 1;
            }
            codes += 1;
        }
        assert!(codes > 2000);
        eprintln!("{}: {codes} code objects, {checked} instructions", interpreter.version);
    }
}
