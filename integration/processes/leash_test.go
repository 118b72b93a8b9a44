//go:build unix && !linux

package processes

import "syscall"

// leash: elsewhere a worker process notices by its standard input, unless it is
// stopped.
func leash() *syscall.SysProcAttr { return nil }
