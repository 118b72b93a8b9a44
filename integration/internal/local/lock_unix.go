//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package local

import (
	"os"
	"syscall"
)

// A lock is the lock of a file that the rooms of one working copy share. The kernel releases the locks of a dead
// process.
type lock struct{ file *os.File }

func newLock(path string) (*lock, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &lock{file}, nil
}

// share waits until no room owns the lock.
func (l *lock) share() error { return l.flock(syscall.LOCK_SH) }

// own waits until no other room shares or owns the lock.
func (l *lock) own() error { return l.flock(syscall.LOCK_EX) }

// last gives the lock up and reports whether no other room has it. If so, other rooms wait until close. Of rooms that
// leave at the same time at least one is the last, because each has given its own lock up before it asks.
func (l *lock) last() bool {
	return l.flock(syscall.LOCK_UN) == nil && l.flock(syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

func (l *lock) close() { _ = l.file.Close() }

func (l *lock) flock(how int) error {
	for {
		if err := syscall.Flock(int(l.file.Fd()), how); err != syscall.EINTR {
			return err
		}
	}
}
