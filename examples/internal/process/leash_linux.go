package process

import "syscall"

// leash kills a process when the test that started it dies.
func leash() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
