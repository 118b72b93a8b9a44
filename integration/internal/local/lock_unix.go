//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package local

import (
	"os"
	"syscall"
)

// A lock is a lock on a file of the working copy, and each package that runs has one. The kernel releases the locks of a
// dead process.
type lock struct{ file *os.File }

func newLock(path string) (*lock, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &lock{file}, nil
}

// share waits until no package owns the file, and then shares it.
func (l *lock) share() error { return l.flock(syscall.LOCK_SH) }

// own waits until no other package shares or owns the file, and then owns it.
func (l *lock) own() error { return l.flock(syscall.LOCK_EX) }

// last releases the lock, and reports whether no other package has one. If so, this package owns the file, and other
// packages wait until it calls close. If several packages call last at the same time, at least one of them is told that
// it is the last, because each releases its lock before it asks.
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
