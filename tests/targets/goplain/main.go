// A program that allocates and waits, and imports nothing that could profile it.
package main

import (
	"fmt"
	"os"
)

var sink []byte

func main() {
	for i := 0; i < 1000; i++ {
		sink = make([]byte, 10000)
	}
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1))
}
