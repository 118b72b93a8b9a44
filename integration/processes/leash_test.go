//go:build unix && !linux

package processes

import "syscall"

// leash does nothing on other systems: there a worker process detects the death of its parent at its
// standard input, unless the worker is stopped.
func leash() *syscall.SysProcAttr { return nil }
