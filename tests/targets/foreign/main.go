// Profiles of Go packages that write pprof themselves: app WRITER [PORT] writes them into the working directory.
package main

import (
	"context"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/felixge/fgprof"
	"github.com/grafana/pyroscope-go"
	"github.com/grafana/pyroscope-go/godeltaprof"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

var kept [][]byte

func leaf(amount int) (sum int) {
	for number := range amount {
		sum += number * number % 7
	}
	return sum
}

//go:noinline
func middle(amount int) int { return leaf(amount) + leaf(amount/2) }

//go:noinline
func generic[T any]() []T { return make([]T, 20_000) }

func work(span time.Duration) {
	var lock sync.Mutex
	stop := make(chan bool)
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				lock.Lock()
				time.Sleep(2 * time.Millisecond)
				lock.Unlock()
			}
		}
	}()
	for end := time.Now().Add(span); time.Now().Before(end); {
		middle(2_000_000)
		kept = append(kept, generic[byte]())
		lock.Lock()
		lock.Unlock()
	}
	stop <- true
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func save(name string, write func(io.Writer) error) {
	file, err := os.Create(name + ".pprof")
	check(err)
	check(write(file))
	check(file.Close())
}

func delta() {
	heap, mutex, block := godeltaprof.NewHeapProfiler(), godeltaprof.NewMutexProfiler(), godeltaprof.NewBlockProfiler()
	for range 2 {
		work(300 * time.Millisecond)
		runtime.GC()
		runtime.GC()
		// The second files hold what came since the first.
		save("godeltaprof-heap", heap.Profile)
		save("godeltaprof-mutex", mutex.Profile)
		save("godeltaprof-block", block.Profile)
	}
}

func wall() {
	file, err := os.Create("fgprof-wall.pprof")
	check(err)
	stop := fgprof.Start(file, fgprof.FormatPprof)
	work(500 * time.Millisecond)
	check(stop())
	check(file.Close())
}

const script = `
def leaf(n):
    return sum([i * i % 7 for i in range(n)])
def sum(list):
    total = 0
    for number in list:
        total += number
    return total
def middle(n):
    return leaf(n) + leaf(n // 2)
[middle(5000) for _ in range(400)]
`

func interpreter() {
	save("starlark-cpu", func(file io.Writer) error {
		check(starlark.StartProfile(file))
		thread := &starlark.Thread{Name: "main"}
		_, err := starlark.ExecFileOptions(&syntax.FileOptions{}, thread, "/src/app/script.star", script, nil)
		check(err)
		return starlark.StopProfile()
	})
}

func client(port string) {
	profiler, err := pyroscope.Start(pyroscope.Config{
		ApplicationName: "app", ServerAddress: "http://127.0.0.1:" + port, UploadRate: time.Second,
		ProfileTypes: []pyroscope.ProfileType{
			pyroscope.ProfileCPU, pyroscope.ProfileInuseSpace, pyroscope.ProfileGoroutines, pyroscope.ProfileMutexCount,
		},
	})
	check(err)
	pprof.Do(context.Background(), pprof.Labels("request", "é 1"), func(context.Context) { work(1500 * time.Millisecond) })
	check(profiler.Stop())
}

func main() {
	runtime.MemProfileRate = 4096
	runtime.SetMutexProfileFraction(1)
	runtime.SetBlockProfileRate(1)
	switch os.Args[1] {
	case "delta":
		delta()
	case "wall":
		wall()
	case "starlark":
		interpreter()
	case "pyroscope":
		client(os.Args[2])
	}
}
