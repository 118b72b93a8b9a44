//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package local

import (
	"os"
	"syscall"
)

// takeTurn waits until no other room of this working copy has its turn, and returns what ends
// it. Dead processes have none.
func takeTurn() (end func(), err error) {
	file, err := os.Open("../doc.go") // as rooms see it; the go command locks go.mod itself
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, err
	}
	return func() { _ = file.Close() }, nil
}
