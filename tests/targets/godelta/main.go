// A program that writes what godeltaprof says of it: godelta FOLDER. For each line that it reads it works, collects its
// garbage, and writes a profile of what was allocated since the last one to FOLDER, named by the line.
package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"github.com/grafana/pyroscope-go/godeltaprof"
)

var kept [][]byte
var bytes []byte
var sink any

//go:noinline
func always(n int) { bytes = make([]byte, 1000+n) }

//go:noinline
func sometimes(n int) { kept = append(kept, make([]byte, 50000)) }

//go:noinline
func generic[T any](n int) { sink = make([]T, 64*n) }

func work(step int) {
	for i := 0; i < 500*step; i++ {
		always(i % 3 * 500)
	}
	if step%2 == 0 {
		for i := 0; i < 20; i++ {
			sometimes(i)
		}
	}
	if step == 3 {
		kept = kept[:len(kept)/2]
		for i := 0; i < 200; i++ {
			generic[string](i)
			generic[float64](i)
		}
		values := map[int]int{}
		for i := 0; i < 5000; i++ {
			values[i] = i
		}
		sink = values
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	runtime.MemProfileRate = 2048
	debug.SetGCPercent(-1)
	profiler := godeltaprof.NewHeapProfiler()
	fmt.Println("ready")
	input := bufio.NewScanner(os.Stdin)
	for step := 0; input.Scan(); step++ {
		work(step)
		runtime.GC()
		runtime.GC()
		file, err := os.Create(filepath.Join(os.Args[1], input.Text()+".pb.gz"))
		must(err)
		must(profiler.Profile(file))
		must(file.Close())
		fmt.Println("written")
	}
}
