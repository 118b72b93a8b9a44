//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package local

// A lock does nothing here: where files cannot be locked, each room has a container of its own, and -p 1 keeps other rooms away
// from one that measures time.
type lock struct{}

func newLock(string) (*lock, error) { return nil, nil }

func (*lock) share() error { return nil }
func (*lock) own() error   { return nil }
func (*lock) last() bool   { return true }
func (*lock) close()       {}
