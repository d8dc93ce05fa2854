// Programs that are never idle: gobusy serve, gobusy load ADDRESS CLIENTS PAUSE, gobusy count FILE, gobusy work ROUNDS
// [PROFILE]. Each but the last prints a line when it is ready. The first two answer each line of their standard input by
// one of JSON, and end with one more when it ends.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const workers = 8

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// Answers lines by what `say` gives, until there are no more.
func answer(say func() interface{}) {
	input := bufio.NewScanner(os.Stdin)
	output := json.NewEncoder(os.Stdout)
	for input.Scan() {
		must(output.Encode(say()))
	}
	must(input.Err())
}

//go:noinline
func digest(depth int, data []byte) [32]byte {
	if depth > 0 {
		return digest(depth-1, data)
	}
	return sha256.Sum256(data)
}

type reply struct {
	Path   string
	Digest string
	Items  []map[string]int
}

func handle(writer http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	answer := reply{Path: request.URL.Path, Digest: fmt.Sprintf("%x", digest(20, body))}
	for item := 0; item < 20; item++ {
		answer.Items = append(answer.Items, map[string]int{"item": item, "square": item * item})
	}
	json.NewEncoder(writer).Encode(answer)
}

// What a server has done: requests first, then each of the others.
type state struct {
	Address string
	Counts  []uint64
}

// A server, with goroutines that do something else all the time.
func serve() {
	counts := make([]uint64, workers+1)
	for worker := 1; worker <= workers; worker++ {
		go func(count *uint64) {
			ticks := time.NewTicker(time.Millisecond)
			for range ticks.C {
				digest(5, make([]byte, 1000))
				atomic.AddUint64(count, 1)
			}
		}(&counts[worker])
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	server := &http.Server{Handler: http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		handle(writer, request)
		atomic.AddUint64(&counts[0], 1)
	})}
	ended := make(chan error)
	go func() { ended <- server.Serve(listener) }()
	say := func() interface{} {
		now := state{Address: listener.Addr().String()}
		for index := range counts {
			now.Counts = append(now.Counts, atomic.LoadUint64(&counts[index]))
		}
		return now
	}
	fmt.Println("ready")
	answer(say)
	must(server.Shutdown(context.Background()))
	if err := <-ended; err != http.ErrServerClosed {
		panic(err)
	}
	must(json.NewEncoder(os.Stdout).Encode(say()))
}

type client struct {
	requests, failed uint64
	lock             sync.Mutex
	times            []time.Duration
}

func (c *client) request(transport *http.Client, address string, body io.Reader) {
	begin := time.Now()
	response, err := transport.Post("http://"+address+"/some/path", "application/octet-stream", body)
	if err == nil {
		var told reply
		err = json.NewDecoder(response.Body).Decode(&told)
		if err == nil && (response.StatusCode != http.StatusOK || len(told.Items) != 20) {
			err = fmt.Errorf("not the answer that was expected: %v", response.Status)
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
	took := time.Since(begin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		atomic.AddUint64(&c.failed, 1)
	}
	c.lock.Lock()
	c.times = append(c.times, took)
	c.lock.Unlock()
	atomic.AddUint64(&c.requests, 1)
}

type figures struct {
	Requests []uint64
	Failed   uint64
	P50us    float64
	P99us    float64
}

// Clients that ask one after another, each after a pause.
func load(address string, count int, pause time.Duration) {
	transport := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: count}}
	clients := make([]client, count)
	var stop int32
	var group sync.WaitGroup
	for index := range clients {
		group.Add(1)
		go func(c *client) {
			defer group.Done()
			for body := make([]byte, 4096); atomic.LoadInt32(&stop) == 0; time.Sleep(pause) {
				c.request(transport, address, bytes.NewReader(body))
			}
		}(&clients[index])
	}
	// Times are those since the last line.
	say := func() interface{} {
		var found figures
		var times []time.Duration
		for index := range clients {
			c := &clients[index]
			found.Requests = append(found.Requests, atomic.LoadUint64(&c.requests))
			found.Failed += atomic.LoadUint64(&c.failed)
			c.lock.Lock()
			times, c.times = append(times, c.times...), nil
			c.lock.Unlock()
		}
		sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
		if count := len(times); count > 0 {
			found.P50us = float64(times[count/2]) / 1e3
			found.P99us = float64(times[count*99/100]) / 1e3
		}
		return found
	}
	fmt.Println("ready")
	answer(say)
	atomic.StoreInt32(&stop, 1)
	group.Wait()
	must(json.NewEncoder(os.Stdout).Encode(say()))
}

var sink uint64

//go:noinline
func leaf(value uint64) uint64 {
	for step := 0; step < 2000; step++ {
		value = value*6364136223846793005 + 1442695040888963407
	}
	return value
}

//go:noinline
func deep(depth int, value uint64) uint64 {
	if depth == 0 {
		return leaf(value)
	}
	return deep(depth-1, value) + 1
}

// Counts its rounds, each 30 frames deep, in the first word of a file.
func count(path string) {
	runtime.LockOSThread()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	must(err)
	shared, err := syscall.Mmap(int(file.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	must(err)
	fmt.Println("ready")
	word := (*uint64)(unsafe.Pointer(&shared[0]))
	for round := uint64(1); ; round++ {
		sink += deep(30, round)
		atomic.StoreUint64(word, round)
	}
}

// So many rounds, with Go's own profile at 1 kHz if there is a file to write it to.
func work(rounds uint64, path string) {
	if path != "" {
		file, err := os.Create(path)
		must(err)
		// What is asked for first stays: StartCPUProfile then says that its own 100 Hz cannot be set, and goes on.
		runtime.SetCPUProfileRate(1000)
		must(pprof.StartCPUProfile(file))
		defer pprof.StopCPUProfile()
	}
	for round := uint64(0); round < rounds; round++ {
		sink += deep(30, round)
	}
}

func main() {
	number := func(index int) int {
		value, err := strconv.Atoi(os.Args[index])
		must(err)
		return value
	}
	switch os.Args[1] {
	case "serve":
		serve()
	case "load":
		pause, err := time.ParseDuration(os.Args[4])
		must(err)
		load(os.Args[2], number(3), pause)
	case "count":
		count(os.Args[2])
	case "work":
		path := ""
		if len(os.Args) > 3 {
			path = os.Args[3]
		}
		work(uint64(number(2)), path)
	}
}
