//go:build unix

package processes

import (
	"runtime"
	"syscall"
)

// die ends this process as a fault of its program would.
func die(order string) {
	switch order {
	case deathByPanic:
		panic("ordered to die")
	case deathByMemory:
		_ = syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: 64 << 20, Max: 64 << 20})
		for all := [][]byte(nil); ; {
			all = append(all, make([]byte, 64<<20))
			runtime.KeepAlive(all)
		}
	}
}
