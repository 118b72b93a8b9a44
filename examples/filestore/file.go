//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filestore

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// lock waits until no other store and no other process writes at the path. The lock ends with
// the process at the latest.
func (s *Store) lock() (unlock func(), err error) {
	s.mu.Lock()
	f, err := os.OpenFile(s.Path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = flock(f)
	}
	if err != nil {
		_ = f.Close()
		s.mu.Unlock()
		return nil, err
	}
	// The file stays: if it were removed, another store might hold a lock on the removed file.
	return func() { _ = f.Close(); s.mu.Unlock() }, nil
}

func flock(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			return os.NewSyscallError("flock "+f.Name(), err)
		}
	}
}

// load reads the file. It needs no lock, because save replaces the file in one step.
//
// An empty or damaged file is an error and not an empty table: an empty table would let a
// worker claim a shard that another one holds.
func (s *Store) load() (items, error) {
	text, err := os.ReadFile(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return items{}, nil
	}
	if err != nil {
		return nil, err
	}
	var all items
	if err := gob.NewDecoder(bytes.NewReader(text)).Decode(&all); err != nil {
		return nil, fmt.Errorf("decode %s: %w", s.Path, err)
	}
	return all, nil
}

// save replaces the file. A crash before the rename leaves the old file, and a file that the
// next save overwrites. If the directory cannot be synced, the outcome of the write is unknown:
// workers read the new file, and a crash of the machine may bring the old one back.
func (s *Store) save(all items) error {
	f, err := os.OpenFile(s.Path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(gob.NewEncoder(f).Encode(all), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(s.Path+".new", s.Path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(s.Path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
