//go:build !go1.21

package main

import "runtime"

// Before Go 1.21 profiles had no start lines, and names without type arguments.
func frameStartLine(frame *runtime.Frame) int { return 0 }

func frameSymbolName(frame *runtime.Frame) string { return frame.Function }
